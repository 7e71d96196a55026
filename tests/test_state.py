"""The state of every learner: declared in one table, checked, restored and copied bit by bit."""

import copy
import pickle

import numpy as np
import pytest

import orfit
from interrupts import LEARNERS, everything, stream
from orfit.core._core import Rows
from orfit.state import DTYPES, TABLE, from_arrays, to_arrays

pytestmark = pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")
P = 6
every_learner = pytest.mark.parametrize("name", LEARNERS)
# Fields of `orfit.PerLayer`, which is no `Learner`.
OF_PER_LAYER = {"checked", "remembered", "since_refresh"}
# Learners that have most of the other fields among them.
SOME = "principal", "noise auto", "forgetting auto", "growing", "sketch symmetric", "rls", "meter"


def make(name, rows=20):
    maker, learn = LEARNERS[name]
    learner, (X, Y) = maker(P), stream(P, rows)
    learn(learner, X, Y)
    return learner


def fields(s):
    """The names and values of all fields; rows and base of a store, and all parts."""
    for name, value in vars(s).items():
        if name == "parts":
            for part in value:
                yield from fields(part)
        elif name == "store":
            yield from (("rows", value.rows), ("base", value.base))
        elif not name.startswith("_"):
            yield name, value


def as_bytes(arrays):
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


@every_learner
def test_every_field_is_declared_and_has_the_declared_kind(name):
    for learner in (make(name, 0), make(name)):
        for field, value in fields(learner._cell.state):
            declared = TABLE[field]
            assert value is not None or declared.optional
            if value is None:
                continue
            if declared.sequence:
                assert all(type(number) is int for number in value)
            elif declared.sides == ():
                types = {"count": (int, np.integer), "flag": (bool,), "double": (float,)}
                assert isinstance(value, types[declared.kind]), (field, type(value))
            else:
                assert declared.sides is ... or np.ndim(value) == len(declared.sides)
                if declared.kind in DTYPES:
                    assert value.dtype == DTYPES[declared.kind]


def test_every_declared_field_is_used():
    used = {field for name in LEARNERS for field, _ in fields(make(name)._cell.state)}
    assert used | OF_PER_LAYER == set(TABLE)


@every_learner
def test_arrays_make_the_same_state(name):
    learner = make(name)
    arrays = {k: np.array(array) for k, array in to_arrays(learner._cell.state).items()}
    made = from_arrays(make(name, 0)._cell.state, dict(arrays))
    assert as_bytes(to_arrays(made)) == as_bytes(arrays)
    assert list(vars(made)) == list(vars(make(name, 0)._cell.state))


@every_learner
def test_a_step_changes_no_array_of_the_state_before(name):
    _, learn = LEARNERS[name]
    learner, (X, Y) = make(name, 0), stream(P, 40)
    for i in range(len(X)):
        before = learner._cell.state
        arrays, attributes = as_bytes(to_arrays(before)), dict(vars(before))
        learn(learner, X[i : i + 1], Y[i : i + 1])
        after = as_bytes(to_arrays(before))
        if isinstance(learner._cell.held, Rows):  # the core changes large arrays in place
            arrays, after = (
                {name: array for name, array in both.items() if name not in {"rows", "base", "P"}}
                for both in (arrays, after)
            )
        assert after == arrays
        same = [vars(before)[k] is value for k, value in attributes.items() if k[0] != "_"]
        assert all(same)


@pytest.mark.parametrize("name", SOME)
def test_missing_and_unknown_arrays_are_refused(name):
    learner, new = make(name), make(name, 0)._cell.state
    arrays = to_arrays(learner._cell.state)
    for field in arrays:
        fewer = {k: array for k, array in arrays.items() if k != field}
        if not TABLE[field.rpartition(".")[2]].optional:
            with pytest.raises(ValueError, match=f"it has no array {field}"):
                from_arrays(new, fewer)
        with pytest.raises(ValueError, match=rf"it has unknown arrays: \['{field}x'\]"):
            from_arrays(new, arrays | {f"{field}x": arrays[field]})


@pytest.mark.parametrize("name", SOME)
def test_arrays_of_another_dtype_or_shape_are_refused(name):
    learner, new = make(name), make(name, 0)._cell.state
    arrays = to_arrays(learner._cell.state)
    for field, array in arrays.items():
        sides = TABLE[field.rpartition(".")[2]].sides
        with pytest.raises(ValueError, match="must be .*; it is"):
            from_arrays(new, arrays | {field: array.astype(np.int32)})
        with pytest.raises(ValueError, match="must have shape"):
            from_arrays(new, arrays | {field: array[None]})
        # A side with a capital letter has a fixed size.
        for axis in range(array.ndim):
            if sides is ... or sides[axis].isupper():
                longer = np.concatenate([array, np.zeros_like(array)], axis=axis)
                with pytest.raises(ValueError, match="must have shape"):
                    from_arrays(new, arrays | {field: longer})


def test_sides_of_one_letter_agree():
    learner, new = make("principal"), make("principal", 0)._cell.state
    arrays = to_arrays(learner._cell.state)
    for field in ("W", "M", "shift", "sigma"):
        shorter = arrays[field][..., :-1]
        with pytest.raises(ValueError, match="must have shape"):
            from_arrays(new, arrays | {field: shorter})


@pytest.mark.parametrize("name", SOME)
def test_numbers_outside_their_limits_are_refused(name):
    learner, new = make(name), make(name, 0)._cell.state
    arrays = to_arrays(learner._cell.state)
    for field, array in arrays.items():
        declared = TABLE[field.rpartition(".")[2]]
        outside = []
        if np.isfinite(declared.low):
            outside.append(declared.low - 1)
        if np.isfinite(declared.high):
            outside.append(declared.high * 2 + 1)
        if array.dtype.kind == "f":
            outside += [np.nan, np.inf, -np.inf]
        for number in outside if array.size else ():
            wrong = array.copy()
            wrong.reshape(-1)[-1] = number
            with pytest.raises(ValueError, match="must be (finite|between)"):
                from_arrays(new, arrays | {field: wrong})


@every_learner
def test_copies_and_files_continue_bit_by_bit(name, tmp_path):
    """Also from the state before the first row."""
    maker, learn = LEARNERS[name]
    X, Y = stream(P, 30)
    for rows in (0, 17):
        learner = make(name, 0)
        learn(learner, X[:rows], Y[:rows])
        learner.save(tmp_path / "learner")
        settings = {}
        if name in ("tangent", "network", "ekf two outputs"):
            settings["model"] = maker(P).model
        others = [
            copy.copy(learner),
            pickle.loads(pickle.dumps(learner)),
            orfit.load(tmp_path / "learner", **settings),
        ]
        for one in (learner, *others):
            learn(one, X[rows:], Y[rows:])
        for other in others:
            assert everything(other) == everything(learner)


AUTO = [
    {"noise": noise, "tail": tail, "forgetting": forgetting}
    for noise in (0.0, 0.1, "auto")
    for tail in (True, "auto")
    for forgetting in (1.0, "auto")
]


@pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")
@pytest.mark.parametrize("settings", AUTO, ids=str)
@pytest.mark.parametrize("heads", [None, 2])
def test_learner_with_a_start_is_loaded(heads, settings, tmp_path, rng):
    model = orfit.Linear(5, heads=heads)
    learner = orfit.ORFit(model, 3, w0=np.ones(model.initial().shape), **settings)
    for _ in range(2):
        learner.save(tmp_path / "file")
        loaded = orfit.load(tmp_path / "file")
        x, y = rng.standard_normal(5), 1.0 if heads is None else np.ones(heads)
        for one in (learner, loaded):
            one.learn(x, y)
        assert (loaded.w == learner.w).all()


def test_start_is_loaded_if_w_has_come_to_zero(tmp_path):
    learner = orfit.ORFit(orfit.Linear(2), w0=[1.0, 0.0])
    learner.learn([1.0, 0.0], 0.0)
    learner.save(tmp_path / "file")
    assert (orfit.load(tmp_path / "file").w == 0).all()


def test_copies_of_a_memory_share_no_buffer(rng):
    memory = orfit.memory.Principal(5)
    memory.absorb(rng.standard_normal((6, 2)))
    learners = [orfit.ORFit(orfit.Linear(6), m, noise=0.1) for m in (copy.copy(memory), memory)]
    for _ in range(3):
        for learner in learners:
            learner.learn_each(rng.standard_normal((5, 6)), rng.standard_normal(5))
    for learner in learners:
        U = learner.memory.U
        assert np.abs(U.T @ U - np.eye(learner.memory.rank)).max() < 1e-12


def test_refused_learner_leaves_its_memory_free():
    memory = orfit.memory.Latest(3)
    with pytest.raises(ValueError, match="meter"):
        orfit.ORFit(orfit.Linear(5), memory, meter="none")
    orfit.ORFit(orfit.Linear(6), memory)
