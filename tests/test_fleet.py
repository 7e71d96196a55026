"""Many small learners in shared arrays: each is what it would be by itself."""

import copy
import pickle

import numpy as np
import pytest

import orfit
from orfit.learners import fleet as fleets

COUNT, P, M = 12, 9, 4


@pytest.fixture(params=["compiled", "plain"])
def way(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(fleets, "find_spec", lambda name: None)
    else:
        pytest.importorskip("numba")


def stream(rows=240, heads=None, seed=0):
    rng = np.random.default_rng(seed)
    outputs = () if heads is None else (heads,)
    X, Y = rng.standard_normal((rows, P)), rng.standard_normal((rows, *outputs))
    return rng.integers(0, COUNT - 1, rows), X, Y  # the last one sees nothing


SETTINGS = {
    "usual": ({}, {"noise": 0.1}),
    "no tail": ({}, {"noise": 0.1, "tail": False}),
    "heads and a bias": ({"heads": 3, "bias": True}, {"noise": 1.0}),
    "started": ({}, {"noise": 0.5, "w0": np.arange(P, dtype=float)}),
    "features": ({"features": np.cos}, {"noise": 0.1}),
}


def pair(case, m=M):
    of_model, settings = SETTINGS[case]
    model = orfit.Linear(P, **of_model)
    singles = [orfit.ORFit(model, m, rows="plain", **settings) for _ in range(COUNT)]
    return orfit.Fleet(COUNT, model, m, **settings), singles, stream(heads=model.heads)


def check_alike(fleet, singles, X):
    for i, single in enumerate(singles):
        one = fleet[i]
        assert one.seen == single.seen == fleet.seen[i]
        assert np.abs(one.w - single.w).max() <= 1e-10
        sigma = single.memory.sigma
        assert np.abs(one.memory.sigma - sigma).max(initial=0) <= 1e-10
        assert np.abs(one.memory.lost - single.memory.lost) <= 1e-10 * (1 + single.memory.lost)
        spread, expected = (
            learner.predict(X, std="mean")[1] / np.sqrt(learner.scale) for learner in (one, single)
        )
        assert np.abs(spread - expected).max() <= 1e-10
        which = np.full(len(X), i)
        assert np.abs(fleet.predict(which, X) - single.predict(X)).max() <= 1e-10


@pytest.mark.parametrize("case", SETTINGS)
def test_each_is_what_it_is_by_itself(case, way):
    fleet, singles, (which, X, Y) = pair(case)
    for rows in (slice(1), slice(1, 90), slice(90, 91), slice(91, None)):
        told = fleet.learn(which[rows], X[rows], Y[rows])
        expected = [
            singles[i].learn(x, y).prediction
            for i, x, y in zip(which[rows], X[rows], Y[rows], strict=True)
        ]
        assert told.shape == Y[rows].shape
        assert np.abs(told - np.array(expected)).max() <= 1e-10
        if case != "features" or rows.stop is None:
            check_alike(fleet, singles, X[:3])


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


def test_as_many_directions_as_parameters_and_more(way):
    for m in (P, P + 5):
        fleet, singles, (which, X, Y) = pair("usual", m)
        fleet.learn(which, X, Y)
        for i, x, y in zip(which, X, Y, strict=True):
            singles[i].learn(x, y)
        check_alike(fleet, singles, X[:3])


@pytest.mark.slow
def test_rows_that_are_not_for_the_compiled_loop(way):
    """The plain step takes them, and the loop goes on after them."""
    fleet, singles, (which, X, Y) = pair("usual")
    X[30] = 0.0
    X[60] *= 1e-310
    X[100] *= 1e200
    Y[100] *= 1e200
    fleet.learn(which, X, Y)
    for i, x, y in zip(which, X, Y, strict=True):
        singles[i].learn(x, y)
    for i, single in enumerate(singles):
        assert np.allclose(fleet[i].w, single.w, rtol=1e-10, atol=1e-10)
        assert fleet[i].seen == single.seen


@pytest.mark.slow
@pytest.mark.parametrize("novelty", [1.0, 0.03, 1e-7, 0.0])
def test_directions_stay_orthonormal(novelty):
    """Also where hardly anything of a row is new, so that rounding is what is left of it."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    fleet = orfit.Fleet(2, orfit.Linear(60), 12, noise=0.1)
    single = orfit.ORFit(orfit.Linear(60), 12, noise=0.1, rows="plain")
    common = rng.standard_normal((8, 60))
    X = rng.standard_normal((1500, 8)) @ common + novelty * rng.standard_normal((1500, 60))
    y = rng.standard_normal(1500)
    fleet.learn(np.ones(1500, int), X, y)
    rank = fleet._counts[1, 0]
    U = fleet._U[1, :rank]
    assert np.abs(U @ U.T - np.eye(rank)).max() <= 1e-13
    single.learn_each(X[:300], y[:300])
    few = orfit.Fleet(1, orfit.Linear(60), 12, noise=0.1)
    few.learn(np.zeros(300, int), X[:300], y[:300])
    assert np.abs(few[0].w - single.w).max() <= 1e-10
    assert few[0].memory.rank == single.memory.rank


def test_one_file_copies_and_pickles(way, tmp_path):
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
            assert (other._sigma == fleet._sigma).all()
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


@pytest.mark.slow
def test_after_warming_up_nothing_more_is_compiled():
    pytest.importorskip("numba")
    from orfit.kernels import fleet as kernels

    orfit.warm_up()
    assert len(kernels.learn.signatures) == 1
    for case in SETTINGS:
        fleet, _, (which, X, Y) = pair(case)
        X.flags.writeable = False
        fleet.learn(which, X, Y)
        fleet.learn(which.astype(np.int32)[:9], np.asfortranarray(X[:9], np.float32), Y[:9])
    orfit.Fleet(3, orfit.Linear(2), 1, noise=1).learn([0, 2], np.eye(2, dtype=int), [1, 2])
    assert len(kernels.learn.signatures) == 1


def test_it_takes_little_more_than_directions():
    fleet = orfit.Fleet(10, orfit.Linear(100), 20, noise=1.0)
    assert fleet.numbers <= 10 * 1.02 * (20 + 1) * 100
    assert len(fleet) == 10


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
def test_what_is_refused_changes_nothing(case):
    fleet, _, (which, X, Y) = pair("usual")
    fleet.learn(which, X, Y)
    before = fleet.predict(which, X)
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call(fleet)
    assert (fleet.predict(which, X) == before).all()
    assert fleet.learn(which[:0], X[:0], Y[:0]).shape == (0,)


def test_what_is_no_fleet():
    for settings in ({"noise": 0}, {"noise": "auto"}, {"noise": 1.0, "tail": "auto"}):
        with pytest.raises(ValueError, match="a number noise > 0"):
            orfit.Fleet(3, orfit.Linear(2), 1, **settings)
    with pytest.raises(ValueError, match="float64"):
        orfit.Fleet(3, orfit.Linear(2), 1, noise=1.0, w0=np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="count must be at least 1"):
        orfit.Fleet(0, orfit.Linear(2), 1, noise=1.0)


def test_damaged_files(tmp_path, monkeypatch):
    fleet, _, (which, X, Y) = pair("usual")
    fleet.learn(which, X, Y)

    def saved(name, change):
        made = copy.copy(fleet)
        change(made)
        made.save(tmp_path / name)
        with pytest.raises(orfit.CheckpointError, match="damaged"):
            orfit.load(tmp_path / name)

    saved("rank", lambda f: f._counts.__setitem__((0, 0), 99))
    saved("seen", lambda f: f._counts.__setitem__((0, 1), -1))
    saved("U", lambda f: f._U.__imul__(2))
    saved("count", lambda f: setattr(f, "count", 5))
    saved("m", lambda f: setattr(f, "_m", 10**6))


def test_one_row_and_a_wrong_place_are_told_in_a_sentence():
    fleet = orfit.Fleet(4, orfit.Linear(3), 2, noise=1.0)
    with pytest.raises(ValueError, match=r"which=\[3\], X=\[x\], Y=\[y\] for one"):
        fleet.learn(1, np.ones(3), 1.0)
    for wrong in (4, -5):
        with pytest.raises(IndexError, match=f"there are 4 learners, from 0 on; {wrong} is none"):
            fleet[wrong]


def test_a_row_that_is_refused_keeps_no_other_learner_from_its_rows(way):
    X, y = np.random.default_rng(0).standard_normal((5, P)), np.ones(5)
    X[0] = 1e308
    X[1] *= 1e200
    fleet = orfit.Fleet(4, orfit.Linear(P), m=3, noise=0.1)
    with pytest.raises(ValueError, match="a row of learner 0"):
        fleet.learn([0, 1, 1, 2, 3], X, y)
    assert fleet.seen.tolist() == [0, 2, 1, 1]


def test_nothing_is_no_mistake(way):
    fleet = orfit.Fleet(4, orfit.Linear(P), m=3, noise=0.1)
    assert fleet.learn([], np.empty((0, P)), []).shape == (0,)
    assert fleet.predict([], np.empty((0, P))).shape == (0,)
    with pytest.raises(ValueError, match="it has -1 to 7"):
        fleet.learn([7, -1], np.ones((2, P)), [1.0, 2.0])
