import os

# Before NumPy is there: test processes share the cores already, and threads that wait spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

from orfit.memory.principal import kernels

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(scope="module", params=["compiled", "in coordinates", "plain"])
def every_path(request):
    """Run a module's tests with the compiled row loop, with that in coordinates, and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr("orfit.learners.onestep.kernels", lambda: None)
        else:
            assert kernels() is not None, "the tests need numba: the extra 'dev'"
            patch.setattr("orfit.learners.onestep.WORTH_ROWS", 0)
        if request.param == "in coordinates":
            patch.setattr("orfit.learners.onestep.CHUNK", 2)
            patch.setattr("orfit.learners.onestep.CHUNKED", 1)
            patch.setattr("orfit.learners.onestep.FEW", 0)
        yield request.param


@pytest.fixture
def rng():
    return np.random.default_rng(20)
