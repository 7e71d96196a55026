"""The demo's comparison."""

import pytest

pytest.importorskip("rich", reason="experiments need the extra `experiments`")
from orfit.experiments import digits


@pytest.mark.slow
def test_digits_are_remembered():
    curves = digits.run(digits.Settings(), lambda: None)
    final = {name: accuracy[-1].mean() for name, accuracy in curves.facts.items()}
    assert final["rls"] > 0.95
    assert final["orfit-150"] > 0.95
    assert final["sgd"] < 0.2
    assert digits.forgetting(curves.facts["orfit-150"]) < 0.05
    assert digits.forgetting(curves.facts["one-step-sgd"]) > 0.9
    assert curves["orfit-150", "accuracy_0"].mean[-1] == curves.facts["orfit-150"][-1, 0]
