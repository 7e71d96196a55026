"""Learners of every kind, and exceptions that are raised while they learn."""

import dis
import functools
import itertools
import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import orfit

SOURCE = str(Path(orfit.__file__).parent)


class Interruption(BaseException):
    """What a signal handler raises."""


def one_by_one(learner, X, Y):
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


def two_columns(X):
    return np.stack([X, X[:, ::-1]], axis=2)


def two_outputs(learner, X, Y):
    learner.learn_each(X, np.stack([Y, np.abs(Y)], axis=1))


def network(p, **settings):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = torch.nn.Linear(p, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)
    return orfit.TorchModel(torch.nn.Sequential(*layers).double(), **settings)


def orfit_on(memory, **settings):
    return lambda p: orfit.ORFit(orfit.Linear(p), memory(), **settings)


def rotation(p):
    return np.roll(np.eye(p), 1, axis=0)


M = orfit.memory
# name: (how to make the learner, how it learns)
LEARNERS = {
    "principal": (orfit_on(lambda: 2, noise=0.1), each),
    "principal one by one": (orfit_on(lambda: 2, noise=0.1), one_by_one),
    "principal in batches": (orfit_on(lambda: 2, noise=0.1), batches),
    "principal without noise": (orfit_on(lambda: 2), each),
    "principal fading": (orfit_on(lambda: 2, noise=0.1, forgetting=0.9), each),
    "principal drifting": (orfit_on(lambda: 2, noise=0.1, drift=0.01), each),
    "noise auto": (orfit_on(lambda: 2, noise="auto", tail="auto"), each),
    "forgetting auto": (orfit_on(lambda: 2, noise=0.1, forgetting="auto"), each),
    "growing": (orfit_on(lambda: M.Growing(14), noise=0.01), each),
    "unlimited": (orfit_on(lambda: None, noise=0.1), each),
    "unlimited in batches": (orfit_on(lambda: None, noise=0.1), batches),
    "frequent": (orfit_on(lambda: M.FrequentDirections(2), noise=0.1), each),
    "latest": (orfit_on(lambda: M.Latest(2)), each),
    "random": (orfit_on(lambda: M.Random(2, 1)), each),
    "sketch": (orfit_on(lambda: M.Sketch(3), noise=0.1), each),
    "sketch fresh": (orfit_on(lambda: M.Sketch(3, "fresh", 4), noise=0.1), each),
    "sketch symmetric": (orfit_on(lambda: M.Sketch(4, "symmetric"), noise=0.1), each),
    "nothing": (orfit_on(M.Nothing, noise=0.1), each),
    "moving": (orfit_on(lambda: 3, noise=0.1, dynamics=0.9, drift=0.01), each),
    "advancing": (orfit_on(lambda: 2, noise=0.1), advancing),
    "rls": (lambda p: orfit.RLS(orfit.Linear(p)), each),
    "rls in batches": (lambda p: orfit.RLS(orfit.Linear(p)), batches),
    "rls fading": (lambda p: orfit.RLS(orfit.Linear(p), forgetting=0.9), each),
    "rls forgetting auto": (lambda p: orfit.RLS(orfit.Linear(p), forgetting="auto"), each),
    "rls limit": (lambda p: orfit.RLS(orfit.Linear(p), forgetting=0), each),
    "ntk-rls": (lambda p: orfit.NTKRLS(orfit.Linear(p), drift=0.1), each),
    "ekf": (lambda p: orfit.EKF(orfit.Linear(p), noise=0.3), each),
    "ekf moving": (
        lambda p: orfit.EKF(orfit.Linear(p), noise=0.3, dynamics=rotation(p), drift=0.1), each
    ),
    "ekf advancing": (lambda p: orfit.EKF(orfit.Linear(p), noise=0.3), advancing),
    "ekf two outputs": (
        lambda p: orfit.EKF(orfit.Linear(p, features=two_columns), noise=np.eye(2)), two_outputs
    ),
    "tangent": (lambda p: orfit.ORFit(network(p, tangent=True), 2, noise=0.1), each),
    "network": (lambda p: orfit.ORFit(network(p), 2), each),
    "ogd": (lambda p: orfit.OGD(orfit.Linear(p), 2, lr=0.01, steps=2), each),
    "sgd": (lambda p: orfit.SGD(orfit.Linear(p), lr=0.01), each),
    "meter": (orfit_on(lambda: 2, noise=0.1, meter=orfit.Meter(3)), each),
    "meter one by one": (orfit_on(lambda: 2, noise="auto", meter=orfit.Meter(3)), one_by_one),
    "meter in batches": (orfit_on(lambda: 2, meter=orfit.Meter(3)), batches),
    "meter of rls": (
        lambda p: orfit.RLS(orfit.Linear(p), forgetting=0.9, meter=orfit.Meter(3)), each
    ),
    "meter of ekf": (
        lambda p: orfit.EKF(
            orfit.Linear(p), noise=0.3, dynamics=rotation(p), meter=orfit.Meter(3)
        ),
        each,
    ),
    "meter of sgd": (lambda p: orfit.SGD(orfit.Linear(p), lr=0.01, meter=orfit.Meter(3)), each),
    "greedy": (lambda p: orfit.Greedy(orfit.Linear(p)), each),
    "one-step sgd": (lambda p: orfit.OneStepSGD(orfit.Linear(p)), each),
}  # fmt: skip


def stream(p, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, X @ rng.standard_normal(p) + rng.standard_normal(n)


def everything(learner):
    """All numbers of a learner bit for bit, and its header."""
    arrays, header = learner.state()
    numbers = {k: (v.dtype, v.shape, v.tobytes()) for k, v in arrays.items()}
    return numbers | {"header": json.dumps(header)}


@functools.cache
def without_signals(code):
    """The offsets of opcodes at the begin and the end of a `with` that its handler does not cover.

    Python calls signal handlers after a call, at a jump back and when a function begins. Among
    these opcodes only the call of __exit__ is one of these, and it is the last one. So only a
    tracer can raise an exception there.
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
    """Call run(), and act(count) before each opcode of orfit; returns the number of opcodes.

    Opcodes before which Python calls no signal handler do not count.
    """
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        if frame.f_code.co_name == "__del__":  # Python only reports exceptions there
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti not in without_signals(frame.f_code):
            count += 1
            act(count)
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 reads this when tracing begins
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def raised_at(moment, run, again=None):
    """Raise an Interruption before one opcode of orfit, and return None.

    If there are fewer opcodes, return their number. again: raise another Interruption so many calls
    and returns later, while the first one propagates.
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
    """Raise an Interruption after some time, and return None; False if run() ended before."""

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
