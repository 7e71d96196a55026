import functools
import gc
import os
import sys
from importlib.util import find_spec

# Before NumPy is there: test processes share the cores already, and threads that wait spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

import orfit
from orfit.learners.rows import PLAIN, Auto, WayError

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=10)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


# The three ways to learn rows, from the first row on and wherever they are possible.
NEVER = 10**12
WAYS = {
    "plain": Auto(NEVER, NEVER, coordinate_parameters=NEVER, when_ready=False),
    "compiled": Auto(0, coordinate_parameters=NEVER),
    "coordinates": Auto(0, most_rows=5, coordinate_columns=2, coordinate_parameters=1,
                        coordinate_numbers=0),
}  # fmt: skip
needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="compiled rows need numba")
if find_spec("numba") is None:  # it would be plain by another name
    del WAYS["compiled"]


def is_other_way(value):
    """Whether a parameter of a test asks for rows that are compiled, or learned in coordinates."""
    if isinstance(value, Auto):
        return value != WAYS["plain"]
    return isinstance(value, str) and value in ("compiled", "coordinates")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as slow the cases of other ways than "plain": the default suite has "plain" alone."""
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any(is_other_way(value) for value in values):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """In the default suite rows="auto" means "plain", in the fixtures of a module, too."""
    if item.get_closest_marker("slow") is not None:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Auto, "alone", lambda self, learner, rows, outputs: PLAIN)
        patch.setattr(Auto, "choose", lambda self, learner, rows, outputs: PLAIN)
        return (yield)


def pytest_collection_finish():
    """What is there by now stays to the end: no need to look for garbage in it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Where numba is not installed, a test that asks for compiled rows has nothing to test.

    Compiled rows let OpenMP have all cores, and so torch, whose threads wait by spinning.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    try:
        return (yield)
    except WayError as error:
        if "numba is not installed" in str(error):
            pytest.skip(str(error))
        raise


every_way = pytest.mark.parametrize("rows", list(WAYS.values()), ids=list(WAYS))


def on(rows):
    """ORFit, with rows learned that way."""
    return functools.partial(orfit.ORFit, rows=rows)


@pytest.fixture
def rng():
    return np.random.default_rng(20)
