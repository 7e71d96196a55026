"""scikit-learn's own checks of estimators: all of them, none excused."""

import pytest

pytest.importorskip("sklearn", reason="the estimators need scikit-learn")

from sklearn.utils.estimator_checks import estimator_checks_generator

from orfit.sklearn import ORFitClassifier, ORFitRegressor

pytestmark = pytest.mark.slow

# What `parametrize_with_checks` gives to pytest, as a list: a generator is too lazy for new ones.
CHECKS = [
    pytest.param(*pair, id=f"{type(estimator).__name__}-{pair[1].func.__name__}-{i}")
    for estimator in (ORFitRegressor(), ORFitClassifier())
    for i, pair in enumerate(estimator_checks_generator(estimator))
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
