"""Each learner of a fleet learns bit by bit as it would by itself."""

import copy
import json
import pickle

import numpy as np
import pytest

import crafted
import orfit
from interrupts import everything, raised_at

COUNT, P, M = 12, 9, 4


def stream(rows=240, heads=None, seed=0):  # the last learner has no row
    rng = np.random.default_rng(seed)
    outputs = () if heads is None else (heads,)
    X, Y = rng.standard_normal((rows, P)), rng.standard_normal((rows, *outputs))
    return rng.integers(0, COUNT - 1, rows), X, Y


SETTINGS = {
    "usual": ({}, {"noise": 0.1}),
    "no tail": ({}, {"noise": 0.1, "tail": False}),
    "heads and a bias": ({"heads": 3, "bias": True}, {"noise": 1.0}),
    "started": ({}, {"noise": 0.5, "w0": np.arange(P, dtype=float)}),
    "features": ({"features": np.cos}, {"noise": 0.1}),
    "float32": ({}, {"noise": 0.1, "w0": np.zeros(P, np.float32)}),
}


def pair(case, m=M):
    of_model, settings = SETTINGS[case]
    model = orfit.Linear(P, **of_model)
    singles = [orfit.ORFit(model, m, **settings) for _ in range(COUNT)]
    return orfit.Fleet(COUNT, model, m, **settings), singles, stream(heads=model.heads)


def check_equal(fleet, singles, X):
    for i, single in enumerate(singles):
        one = fleet[i]
        assert one.seen == single.seen == fleet.seen[i]
        if single.seen:
            assert everything(one) == everything(single)
        which = np.full(len(X), i)
        assert np.abs(fleet.predict(which, X) - single.predict(X)).max() <= 1e-12


@pytest.mark.parametrize("case", SETTINGS)
def test_each_is_the_learner_by_itself(case):
    fleet, singles, (which, X, Y) = pair(case)
    for rows in (slice(1), slice(1, 90), slice(90, 91), slice(91, None)):
        predicted = fleet.learn(which[rows], X[rows], Y[rows])
        expected = [
            singles[i].learn(x, y).prediction
            for i, x, y in zip(which[rows], X[rows], Y[rows], strict=True)
        ]
        assert predicted.shape == Y[rows].shape
        assert (predicted == np.array(expected)).all()
        if case != "features" or rows.stop is None:
            check_equal(fleet, singles, X[:3])


def test_the_shape_of_inputs_is_that_of_the_first_rows(tmp_path):
    fleet, _, (which, X, Y) = pair("features")
    fleet.learn(which, X, Y)
    fleet.save(tmp_path / "fleet")
    again = orfit.load(tmp_path / "fleet", model=fleet.model)
    for one in (fleet, again):
        with pytest.raises(ValueError, match="must have shape"):
            one.predict(which[:2], X[:2, :3])
        one[3].save(tmp_path / "one")
        assert (orfit.load(tmp_path / "one", model=fleet.model).w == fleet[3].w).all()


def test_as_many_directions_as_parameters_and_more():
    for m in (P, P + 5):
        fleet, singles, (which, X, Y) = pair("usual", m)
        fleet.learn(which, X, Y)
        for i, x, y in zip(which, X, Y, strict=True):
            singles[i].learn(x, y)
        check_equal(fleet, singles, X[:3])


def test_rows_of_zeros_and_of_huge_and_tiny_numbers():
    fleet, singles, (which, X, Y) = pair("usual")
    X[30] = 0.0
    X[60] *= 1e-310
    X[100] *= 1e200
    Y[100] *= 1e200
    fleet.learn(which, X, Y)
    for i, x, y in zip(which, X, Y, strict=True):
        singles[i].learn(x, y)
    for i, single in enumerate(singles[:-1]):
        assert everything(fleet[i]) == everything(single)


def test_files_copies_and_pickles(tmp_path):
    for case in ("usual", "started", "heads and a bias"):
        fleet, _, (which, X, Y) = pair(case)
        fleet.learn(which, X, Y)
        fleet.save(tmp_path / "fleet")
        others = [
            orfit.load(tmp_path / "fleet"),
            copy.copy(fleet),
            pickle.loads(pickle.dumps(fleet)),
        ]
        for other in others:
            assert repr(other) == repr(fleet)
            assert other.predict(which, X).tobytes() == fleet.predict(which, X).tobytes()
        for one in (fleet, *others):
            one.learn(which, X, Y)
        for other in others:
            assert all(everything(other[i]) == everything(fleet[i]) for i in range(COUNT))
            assert other.predict(which, X).tobytes() == fleet.predict(which, X).tobytes()
            assert (other.seen == fleet.seen).all()


def test_a_learner_of_its_own_is_a_copy():
    fleet, _, (which, X, Y) = pair("started")
    fleet.learn(which, X, Y)
    before = fleet.predict(which, X)
    one = fleet[-1]
    one.learn_each(X, Y)
    fleet[3].merge(fleet[4])
    assert (fleet.predict(which, X) == before).all()
    assert orfit.merge([fleet[3], fleet[4]]).seen == fleet.seen[3] + fleet.seen[4]
    with pytest.raises(IndexError):
        fleet[COUNT]


def test_a_learner_without_a_row_takes_no_memory():
    fleet = orfit.Fleet(10, orfit.Linear(100), 20, noise=1.0)
    assert len(fleet) == 10
    assert fleet.numbers == 0
    fleet.learn([3], np.ones((1, 100)), [1.0])
    assert fleet.numbers < 300  # one row, w, and some numbers


REFUSED = {
    "which": (lambda fleet: fleet.learn([0, COUNT], np.ones((2, P)), [1, 1]), "from 0 to 11"),
    "negative": (lambda fleet: fleet.predict([-1], np.ones((1, P))), "from 0 to 11"),
    "floats": (lambda fleet: fleet.learn([0.5], np.ones((1, P)), [1]), "a whole number for each"),
    "few": (lambda fleet: fleet.learn([0], np.ones((2, P)), [1, 1]), "for each of 2 rows"),
    "NaN": (lambda fleet: fleet.learn([0], np.full((1, P), np.nan), [1]), "NaN|finite"),
    "shape": (lambda fleet: fleet.learn([0], np.ones((1, 2)), [1]), "must have shape"),
    "labels": (lambda fleet: fleet.learn([0], np.ones((1, P)), [[1, 2]]), "shape|label"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_calls_change_nothing(case):
    fleet, _, (which, X, Y) = pair("usual")
    fleet.learn(which, X, Y)
    before = fleet.predict(which, X)
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call(fleet)
    assert (fleet.predict(which, X) == before).all()
    assert fleet.learn(which[:0], X[:0], Y[:0]).shape == (0,)


def test_invalid_settings_are_refused():
    for settings in ({"noise": 0}, {"noise": "auto"}, {"noise": 1.0, "tail": "auto"}):
        with pytest.raises(ValueError, match="a number noise > 0"):
            orfit.Fleet(3, orfit.Linear(2), 1, **settings)
    with pytest.raises(ValueError, match="count must be at least 1"):
        orfit.Fleet(0, orfit.Linear(2), 1, noise=1.0)


DAMAGES = {
    "seen": (lambda h, a: a["numbers.seen"].__setitem__(0, -1), "seen must be between 0"),
    "rows": (lambda h, a: a["numbers.rows"].__imul__(2), "not orthonormal"),
    "count": (lambda h, a: h["settings"].update(count=5), "there are no 5 learners"),
    "m": (lambda h, a: h["settings"].update(m=2), "more than m=2"),
    "missing": (lambda h, a: a.pop("shapes.W"), "needs an array of shapes"),
    "field": (lambda h, a: (a.pop("shapes.W"), a.pop("numbers.W")), "it has no array W"),
    "shape": (lambda h, a: a["shapes.W"].__setitem__(0, 1), "not an array for each"),
    "negative": (lambda h, a: a["shapes.W"].__imul__(-1), "not an array for each"),
    "sides": (lambda h, a: a.update({"shapes.W": a["shapes.W"][:, 0]}), "not an array for each"),
    "learned": (lambda h, a: a["learned"].__setitem__(-1, 1), "not an array for each"),
    "floats": (lambda h, a: a.update({"shapes.W": a["shapes.W"] * 1.0}), "not an array for each"),
    "inputs": (
        lambda h, a: a["numbers.input_shape"].__setitem__(0, P + 1),
        "does not take inputs",
    ),
    "header": (lambda h, a: h.update(more=1), "damaged"),
    "w": (lambda h, a: a.update(w=np.zeros(P - 1)), "w0 must have shape"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_files_are_refused(tmp_path, case):
    fleet, _, (which, X, Y) = pair("usual")
    fleet.learn(which, X, Y)
    fleet.save(tmp_path / "file")
    header, arrays = crafted.parts(tmp_path / "file")
    change, message = DAMAGES[case]
    change(header, arrays)
    crafted.write(tmp_path / "file", json.dumps(header), arrays)
    with pytest.raises(orfit.CheckpointError, match=message):
        orfit.load(tmp_path / "file")


def test_an_exception_at_some_opcodes():
    """Each row was learned by its learner, or not at all."""
    fleet, _, (which, X, Y) = pair("usual")
    fleet.learn(which[:100], X[:100], Y[:100])
    rest = which[100:106], X[100:106], Y[100:106]
    states = [[everything(fleet[i]) for i in range(COUNT)]]
    for i in range(6):
        twin = copy.copy(fleet)
        twin.learn(*(part[: i + 1] for part in rest))
        states.append([everything(twin[j]) for j in range(COUNT)])
    count = raised_at(None, lambda: twin.learn(*rest))
    for moment in np.random.default_rng(0).integers(1, count - 100, 20):
        learner = copy.copy(fleet)
        assert raised_at(moment, lambda learner=learner: learner.learn(*rest)) is None
        rows = int(learner.seen.sum() - fleet.seen.sum())
        assert [everything(learner[j]) for j in range(COUNT)] == states[rows]


def test_one_row_and_a_wrong_index_are_refused():
    fleet = orfit.Fleet(4, orfit.Linear(3), 2, noise=1.0)
    with pytest.raises(ValueError, match=r"which=\[3\], X=\[x\], Y=\[y\] for one"):
        fleet.learn(1, np.ones(3), 1.0)
    for wrong in (4, -5):
        with pytest.raises(IndexError, match=f"there are 4 learners, from 0 on; {wrong} is none"):
            fleet[wrong]


def test_a_refused_row_stops_its_learner_alone():
    X, y = np.random.default_rng(0).standard_normal((5, P)), np.ones(5)
    X[0] = 1e308
    X[1] *= 1e200
    fleet = orfit.Fleet(4, orfit.Linear(P), m=3, noise=0.1)
    with pytest.raises(ValueError, match="a row of learner 0"):
        fleet.learn([0, 1, 1, 2, 3], X, y)
    assert fleet.seen.tolist() == [0, 2, 1, 1]


def test_no_rows_are_possible():
    fleet = orfit.Fleet(4, orfit.Linear(P), m=3, noise=0.1)
    assert fleet.learn([], np.empty((0, P)), []).shape == (0,)
    assert fleet.predict([], np.empty((0, P))).shape == (0,)
    with pytest.raises(ValueError, match="it has -1 to 7"):
        fleet.learn([7, -1], np.ones((2, P)), [1.0, 2.0])
