import gc
import os
import sys

# Before NumPy is there: test processes share the cores already, and threads that wait spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

import core_library

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=10)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_collection_finish():
    """Exclude all present objects from later garbage collections, which would visit them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Let torch use one thread: test processes share the cores already."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    return (yield)


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.fixture(scope="session")
def core():
    """The C functions of the core."""
    return core_library
