"""Exceptions at any moment: paths to learn on, where to raise, and what must be found then."""

import dis
import functools
import itertools
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import conftest
import orfit

SOURCE = str(Path(orfit.__file__).parent)


class Interruption(BaseException):
    """What a signal handler raises."""


# The three ways, in blocks so small that there are several.
WAYS = {name: replace(way, most_rows=6) for name, way in conftest.WAYS.items()}


def plain_rows(learner, X, Y):
    for x, y in zip(X, Y, strict=True):
        learner.learn(x, y)


def batches(learner, X, Y):
    for start in range(0, len(X), 7):
        learner.learn_batch(X[start : start + 7], Y[start : start + 7])


def each(learner, X, Y):
    learner.learn_each(X, Y)


def advancing(learner, X, Y):
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        if i % 2:
            learner.advance(drift=0.1)
        learner.learn(x, y)


def twice(X):
    return np.stack([X, X[:, ::-1]], axis=2)


def two_outputs(learner, X, Y):
    learner.learn_each(X, np.stack([Y, np.abs(Y)], axis=1))


def network(p, **settings):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = torch.nn.Linear(p, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)
    return orfit.TorchModel(torch.nn.Sequential(*layers).double(), **settings)


def orfit_on(memory, **settings):
    return lambda p, rows: orfit.ORFit(orfit.Linear(p), memory(), rows=rows, **settings)


def turned(p):
    return np.roll(np.eye(p), 1, axis=0)


# name: (how to make the learner, how it learns, the ways in which it can)
ALL, PLAIN = tuple(WAYS), ("plain",)
LOOPS = tuple(way for way in WAYS if way != "coordinates")
M = orfit.memory
LEARNERS = {
    "principal": (orfit_on(lambda: 2, noise=0.1), each, ALL),
    "principal one by one": (orfit_on(lambda: 2, noise=0.1), plain_rows, LOOPS),
    "principal in batches": (orfit_on(lambda: 2, noise=0.1), batches, PLAIN),
    "principal without noise": (orfit_on(lambda: 2), each, ALL),
    "principal fading": (orfit_on(lambda: 2, noise=0.1, forgetting=0.9), each, ALL),
    "principal drifting": (orfit_on(lambda: 2, noise=0.1, drift=0.01), each, ALL),
    "noise auto": (orfit_on(lambda: 2, noise="auto", tail="auto"), each, ALL),
    "forgetting auto": (orfit_on(lambda: 2, noise=0.1, forgetting="auto"), each, LOOPS),
    "growing": (orfit_on(lambda: M.Growing(14), noise=0.01), each, ALL),
    "unlimited": (orfit_on(lambda: None, noise=0.1), each, ("plain", "coordinates")),
    "unlimited in batches": (orfit_on(lambda: None, noise=0.1), batches, PLAIN),
    "frequent": (orfit_on(lambda: M.FrequentDirections(2), noise=0.1), each, ALL),
    "latest": (orfit_on(lambda: M.Latest(2)), each, ("plain", "coordinates")),
    "random": (orfit_on(lambda: M.Random(2, 1)), each, ("plain", "coordinates")),
    "sketch": (orfit_on(lambda: M.Sketch(3), noise=0.1), each, PLAIN),
    "sketch fresh": (orfit_on(lambda: M.Sketch(3, "fresh", 4), noise=0.1), each, PLAIN),
    "sketch symmetric": (orfit_on(lambda: M.Sketch(4, "symmetric"), noise=0.1), each, PLAIN),
    "nothing": (orfit_on(M.Nothing, noise=0.1), each, ("plain", "coordinates")),
    "moving": (lambda p, rows: orfit.ORFit(orfit.Linear(p), 3, noise=0.1, dynamics=turned(p),
                                           drift=0.01), each, PLAIN),
    "advancing": (lambda p, rows: orfit.ORFit(orfit.Linear(p), 2, noise=0.1), advancing, PLAIN),
    "rls": (lambda p, rows: orfit.RLS(orfit.Linear(p), rows=rows), each, LOOPS),
    "rls one by one": (lambda p, rows: orfit.RLS(orfit.Linear(p), rows=rows), plain_rows, LOOPS),
    "rls in batches": (lambda p, rows: orfit.RLS(orfit.Linear(p), rows=rows), batches, PLAIN),
    "rls fading": (lambda p, rows: orfit.RLS(orfit.Linear(p), forgetting=0.9, rows=rows), each,
                   LOOPS),
    "rls forgetting auto": (lambda p, rows: orfit.RLS(orfit.Linear(p), forgetting="auto",
                                                      rows=rows), each, LOOPS),
    "rls limit": (lambda p, rows: orfit.RLS(orfit.Linear(p), forgetting=0, rows=rows), each, PLAIN),
    "ntk-rls": (lambda p, rows: orfit.NTKRLS(orfit.Linear(p), drift=0.1, rows=rows), each, PLAIN),
    "ekf": (lambda p, rows: orfit.EKF(orfit.Linear(p), noise=0.3, rows=rows), each, LOOPS),
    "ekf moving": (lambda p, rows: orfit.EKF(orfit.Linear(p), noise=0.3, dynamics=turned(p),
                                             drift=0.1), each, PLAIN),
    "ekf advancing": (lambda p, rows: orfit.EKF(orfit.Linear(p), noise=0.3), advancing, PLAIN),
    "rls in place": (lambda p, rows: orfit.RLS(orfit.Linear(p), rows=rows), each, PLAIN),
    "ekf in place": (lambda p, rows: orfit.EKF(orfit.Linear(p, features=twice), noise=np.eye(2)),
                     two_outputs, PLAIN),
    "tangent": (lambda p, rows: orfit.ORFit(network(p, tangent=True), 2,
                                            noise=0.1, rows=rows), each, ALL),
    "network": (lambda p, rows: orfit.ORFit(network(p), 2, steps=3), each, PLAIN),
    "ogd": (lambda p, rows: orfit.OGD(orfit.Linear(p), 2, lr=0.01, steps=2), each, PLAIN),
    "sgd": (lambda p, rows: orfit.SGD(orfit.Linear(p), lr=0.01), each, PLAIN),
    "meter": (orfit_on(lambda: 2, noise=0.1, meter=orfit.Meter(3)), each, ALL),
    "meter one by one": (orfit_on(lambda: 2, noise="auto", meter=orfit.Meter(3)), plain_rows,
                         LOOPS),
    "meter in batches": (orfit_on(lambda: 2, meter=orfit.Meter(3)), batches, PLAIN),
    "meter of rls": (lambda p, rows: orfit.RLS(orfit.Linear(p), forgetting="auto", rows=rows,
                                               meter=orfit.Meter(3)), each, LOOPS),
    "meter of ekf": (lambda p, rows: orfit.EKF(orfit.Linear(p), noise=0.3, dynamics=turned(p),
                                               meter=orfit.Meter(3)), each, PLAIN),
    "meter of sgd": (lambda p, rows: orfit.SGD(orfit.Linear(p), lr=0.01, meter=orfit.Meter(3)),
                     each, PLAIN),
    "greedy": (lambda p, rows: orfit.Greedy(orfit.Linear(p)), each, PLAIN),
    "one-step sgd": (lambda p, rows: orfit.OneStepSGD(orfit.Linear(p)), each, PLAIN),
}  # fmt: skip
PATHS = [(name, way) for name, (_, _, ways) in LEARNERS.items() for way in ways]


def stream(p, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, X @ rng.standard_normal(p) + rng.standard_normal(n)


def everything(learner):
    """All that learning has made of it, bit by bit."""
    if isinstance(learner.memory, M.Sketch):  # keeps a root that a step has asked for
        learner.predict(np.ones(learner.model.size), std=True)
    arrays, header = learner._reading(learner.state)
    numbers = {k: (v.dtype, v.shape, v.tobytes()) for k, v in arrays.items()}
    return numbers | {"header": json.dumps(header)}


@functools.cache
def without_signals(code):
    """Where opcodes are on the way into and out of a `with` that no handler covers.

    Python calls handlers of signals after a call, at a jump back and when a function begins, and
    none of these is among them but the call of __exit__, after which all is over: an exception
    there comes from a tracer alone.
    """
    steps = list(dis.get_instructions(code))
    names = [step.opname for step in steps]
    found = set()
    for k in range(len(steps)):
        if names[k : k + 3] == ["BEFORE_WITH", "POP_TOP", "NOP"]:
            found.add(steps[k + 2].offset)
        if [(one.opname, one.argval) for one in steps[k : k + 3]] == [("LOAD_CONST", None)] * 3:
            leaving = itertools.takewhile(lambda one: one.opname != "POP_TOP", steps[k:])
            found.update(one.offset for one in leaving)
            if names[k - 1] in ("NOP", "SWAP"):
                found.add(steps[k - 1].offset)
    return found


def at_opcodes(run, act):
    """Run, with `act` called before each opcode of orfit's, with how many there were so far.

    But for those that a signal's handler never comes before.
    """
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        if frame.f_code.co_name == "__del__":  # of another one: Python would but mention it
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti not in without_signals(frame.f_code):
            count += 1
            act(count)
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks, when tracing begins, who wants them
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def raised_at(moment, run, again=None):
    """Run with an Interruption before an opcode of orfit's: None. Or how many there are, if fewer.

    again: another one so many calls and returns later, while the first is on its way.
    """
    later = 0

    def act(count):
        if count == moment:
            if again is not None:
                sys.setprofile(profile)
            raise Interruption  # which ends the tracing

    def profile(frame, event, arg):
        nonlocal later
        if frame.f_code.co_filename.startswith(SOURCE):
            later += 1
            if later == again:
                raise Interruption

    before = sys.getprofile()
    try:
        return at_opcodes(run, act)
    except Interruption:
        return None
    finally:
        sys.setprofile(before)


def alarmed(seconds, run):
    """Run, with an Interruption after some time: None. Or something else, if it was over before."""

    def handler(number, frame):
        raise Interruption

    old = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        run()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interruption:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    return False
