"""river's own checks of estimators: all of them, none excused."""

import warnings

import pytest

pytest.importorskip("river", reason="the estimators need river")
pytest.importorskip("sklearn", reason="river's checks take data from scikit-learn")

from river import checks

from orfit.river import ORFitClassifier, ORFitMultiTargetRegressor, ORFitRegressor

pytestmark = pytest.mark.slow

KINDS = (ORFitRegressor, ORFitClassifier, ORFitMultiTargetRegressor)
# The first parameters are the defaults; the others take as long again.
CHECKS = [
    pytest.param(
        kind(**params), check, id=f"{kind.__name__}-{check.__name__}-{i}-{j}",
        marks=[pytest.mark.slow] if i else [],
    )
    for kind in KINDS
    for i, params in enumerate(kind._unit_test_params())
    for j, check in enumerate(checks.yield_checks(kind(**params)))
]  # fmt: skip


@pytest.mark.parametrize(("model", "check"), CHECKS)
def test_river_checks(model, check):
    assert not model._unit_test_skips()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # raw units, where scaling is off
        check(model.clone())
