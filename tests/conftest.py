import os

import numpy as np
import pytest
from hypothesis import settings

from orfit.memory.principal import kernels

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(scope="module", params=["compiled", "plain"])
def both_paths(request):
    """Run a module's tests with the compiled row loop, and without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr("orfit.learners.onestep.kernels", lambda: None)
        else:
            assert kernels() is not None, "the tests need numba: pip install orfit[dev]"
        yield request.param


@pytest.fixture
def rng():
    return np.random.default_rng(20)
