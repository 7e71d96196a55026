"""Settings that change between rows are checked, used from the next row on, and saved."""

import copy

import numpy as np
import pytest

import orfit
from orfit.memory import Nothing
from test_contract import state

MAKERS = {
    "ORFit": lambda **k: orfit.ORFit(orfit.Linear(5), 3, **({"noise": 0.5} | k)),
    "RLS": lambda **k: orfit.RLS(orfit.Linear(5), **k),
    "NTKRLS": lambda **k: orfit.NTKRLS(orfit.Linear(5), **k),
    "EKF": lambda **k: orfit.EKF(orfit.Linear(5), **({"noise": 0.5} | k)),
}
CHANGES = [
    ("ORFit", {"noise": 2.0}),
    ("ORFit", {"noise": 0.0}),
    ("ORFit", {"forgetting": 0.5}),
    ("RLS", {"forgetting": 0.5}),
    ("RLS", {"forgetting": 0.0}),
    ("RLS", {"drift": 0.5}),
    ("NTKRLS", {"forgetting": 0.5}),
    ("NTKRLS", {"drift": np.arange(5.0)}),
    ("EKF", {"noise": 3.0}),
    ("EKF", {"drift": np.eye(5)}),
]


def data(seed, n=20):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 5)), rng.standard_normal(n)


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_a_change_holds_from_the_next_row_on_and_is_saved(kind, change, tmp_path):
    X, y = data(0)
    early, late = MAKERS[kind](), MAKERS[kind](**change)
    for learner in (early, late):
        learner.learn_each(X[:10], y[:10])
    w = early.w
    for name, value in change.items():
        setattr(early, name, value)
        assert np.array_equal(getattr(early, name), value)
    assert (early.w == w).all()
    # A learner that was constructed with the new setting, in the state of this one.
    late.restore(copy.deepcopy(early._cell.state))
    early.save(tmp_path / "learner")
    twin = orfit.load(tmp_path / "learner")
    for learner in (early, late, twin):
        learner.learn_each(X[10:], y[10:])
    assert (early.w == late.w).all()
    assert state(twin) == state(early)
    for name, value in change.items():
        assert np.array_equal(getattr(twin, name), value)


REFUSED = [
    ("ORFit", "noise", -5, "noise must not be negative; it is -5"),
    ("ORFit", "noise", "much", "noise must hold real numbers"),
    ("ORFit", "noise", np.nan, "noise must be finite"),
    ("ORFit", "noise", True, "noise must be a number; it is True"),
    ("ORFit", "forgetting", np.True_, "forgetting must be a number; it is True"),
    ("ORFit", "drift", False, "drift must be a number; it is False"),
    ("EKF", "noise", True, "noise must be a number; it is True"),
    ("EKF", "drift", True, "drift must be a number; it is True"),
    ("ORFit", "forgetting", 0, r"forgetting must be in \(0, 1\]"),
    ("ORFit", "forgetting", 1.5, r"forgetting must be in \(0, 1\]"),
    ("RLS", "forgetting", -0.1, r"forgetting must be in \[0, 1\]"),
    ("RLS", "noise", 3.0, "RLS counts in units of the noise"),
    ("RLS", "drift", -1, "drift must not be negative"),
    ("RLS", "drift", [1, 2], "drift must be a number, 5 of them or 5×5"),
    ("EKF", "noise", -1, "noise must not be negative"),
    ("EKF", "noise", -np.eye(2), "noise must be positive semidefinite"),
    ("EKF", "forgetting", 0.9, "forgets by drift"),
    ("EKF", "drift", np.triu(np.ones((5, 5))), "drift must be symmetric"),
]


@pytest.mark.parametrize(("kind", "name", "value", "message"), REFUSED)
def test_a_refused_setting_changes_nothing(kind, name, value, message):
    learner = MAKERS[kind]()
    learner.learn_each(*data(1))
    before, settings = state(learner), repr(learner)
    with pytest.raises(ValueError, match=message):
        setattr(learner, name, value)
    assert (state(learner), repr(learner)) == (before, settings)


def test_a_setting_that_the_learner_does_not_have_is_refused():
    sgd = orfit.OneStepSGD(orfit.Linear(3))
    with pytest.raises(ValueError, match=r"ORFit\(model, orfit.memory.Nothing\(\), noise=…\)"):
        sgd.noise = 1.0
    with pytest.raises(ValueError, match="remembers nothing that could be forgotten"):
        sgd.forgetting = 0.5
    with pytest.raises(ValueError, match="drift"):
        sgd.drift = -1


MISTAKES = [
    ("forgeting", 0.9, "ORFit.forgeting is no setting; .* is: drift, forgetting, noise"),
    ("lr", 0.1, "ORFit.lr is no setting"),
    ("memory", 10, "ORFit.memory cannot be set"),
    ("tail", False, "tail cannot be set"),
    ("steps", 3, "ORFit.steps is no setting"),
    ("w", np.zeros(5), "w cannot be set"),
    ("learn", None, "learn cannot be set"),
]


@pytest.mark.parametrize(("name", "value", "message"), MISTAKES)
def test_a_mistaken_name_is_refused(name, value, message):
    learner = MAKERS["ORFit"]()
    learner.learn_each(*data(1))
    before, settings = state(learner), repr(learner)
    with pytest.raises(AttributeError, match=message):
        setattr(learner, name, value)
    assert (state(learner), repr(learner)) == (before, settings)


def test_step_sizes_may_change_and_are_checked(tmp_path):
    for learner in (orfit.SGD(orfit.Linear(5), lr=0.1), orfit.OGD(orfit.Linear(5), 3, lr=0.1)):
        learner.lr = 0.01
        with pytest.raises(ValueError, match="lr must be positive"):
            learner.lr = -1
        learner.save(tmp_path / "learner")
        assert orfit.load(tmp_path / "learner").lr == learner.lr == 0.01
    learner.steps = 5
    with pytest.raises(ValueError, match="steps must be at most 1000"):
        learner.steps = 1_000_000
    assert learner.steps == 5


def test_a_subclass_has_attributes_of_its_own():
    class Counting(orfit.ORFit):
        calls = 0

        def predict(self, X, std=False):
            self._calls = getattr(self, "_calls", 0) + 1
            return super().predict(X, std)

    learner = copy.deepcopy(Counting(orfit.Linear(3)))
    learner.predict(np.ones(3))
    assert learner._calls == 1
    with pytest.raises(AttributeError, match="calls cannot be set"):
        learner.calls = 1


def test_a_refused_setting_leaves_the_memory_free():
    memory = Nothing()
    with pytest.raises(ValueError, match="noise must not be negative"):
        orfit.ORFit(orfit.Linear(3), memory, noise=-1)
    orfit.ORFit(orfit.Linear(3), memory)


def test_an_array_that_was_set_cannot_be_changed_from_outside():
    drift = np.ones(5)
    learner = orfit.RLS(orfit.Linear(5), drift=drift)
    drift[:] = 7
    assert (learner.drift == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        learner.drift[0] = 2


@pytest.mark.parametrize("other", ["tail", "forgetting"])
def test_the_noise_of_compared_candidates_cannot_be_set(other):
    """The message names the setting that excludes it; an invalid noise is refused first."""
    learner = orfit.ORFit(orfit.Linear(5), 3, noise=0.5, **{other: "auto"})
    learner.learn_each(*data(0))
    with pytest.raises(ValueError, match='with tail or forgetting "auto"'):
        learner.noise = 0.3
    with pytest.raises(ValueError, match="noise must not be negative; it is -5"):
        learner.noise = -5
    assert learner.noise == 0.5
