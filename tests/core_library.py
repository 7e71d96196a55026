"""The C core as libraries for ctypes, and its two kinds of learners, whose arrays tests own.

All sources form one library for each target and each pair of number types, with -DORFIT_TEST, by
which the functions are visible. Libraries are compiled once and kept in the folder .cache/core.
Tests that are not slow use two of double, and one of float in strict C99.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from orfit.core import layout

TESTS = Path(__file__).parent
ROOT_FOLDER = TESTS.parent
SOURCES = ROOT_FOLDER / "src/orfit/core"
EXACT = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
FLAGS = [*EXACT, "-Wall", "-Wextra", "-Wno-psabi", "-fPIC", "-DORFIT_TEST"]
# Sizes that are macros in C, and settings that tests change.
PROLOGUE = """
extern int most_passes;
#define MOST_PASSES most_passes
#include "core.c"
int most_passes = 100;
ptrdiff_t spectrum_work(int n) { return SPECTRUM_WORK(n); }
ptrdiff_t spectrum_spare(int n, ptrdiff_t stride) { return SPECTRUM_SPARE(n, stride); }
ptrdiff_t spectrum_order(int n) { return SPECTRUM_ORDER(n); }
ptrdiff_t spectrum_stride(int n) { return SPECTRUM_STRIDE(n); }
"""
LEVELS = {
    "x86-64-v3": {"avx2", "bmi2", "fma"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
NAMES = {np.float64: "double", np.float32: "float"}
ALIGNMENT, LANES = 64, 8
DONE, BAD_GRADIENT, BAD_PREDICTION, TOO_LARGE, NEEDS_ROOM, NEEDS_LIMIT = range(6)
ROOT, PLAIN = 0, 1
MEMORIES = "principal", "latest", "random", "unlimited", "nothing"
NO_DRIFT, NUMBER, DIAGONAL, MATRIX = range(4)


# Compilation.


@functools.cache
def targets():
    """The targets that this processor can run; the first one has no vectors."""
    if platform.machine() != "x86_64":
        return ["plain", "native"]
    info = Path("/proc/cpuinfo")
    flags = (
        info.read_text().partition("flags")[2].partition("\n")[0].split() if info.exists() else []
    )
    return ["plain", "x86-64", *(level for level, needs in LEVELS.items() if needs <= {*flags})]


def options_of(target):
    """The options of the compiler for a target. The plain one is compiled fast, by C99 alone."""
    if target == "plain":
        return ["-std=c99", "-pedantic", "-O1", "-DORFIT_PLAIN"]
    return ["-std=gnu99", "-O3", *([] if target == "native" else [f"-march={target}"])]


def find_compiler():
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("The functions of the core are tested where there is a C compiler (cc).")
    return compiler


def compile(target, dtype, *options, small=None, text=None):
    """Compile all sources as one unit."""
    types = f"-DREAL={NAMES[dtype]}", f"-DSMALL={NAMES[small or dtype]}"
    command = [find_compiler(), *FLAGS, *options_of(target), *types, *options]
    command += [f"-I{SOURCES}", "-x", "c", "-", "-lm"]
    unit = unit_text() if text is None else text
    done = subprocess.run(command, input=unit, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return done


@functools.cache
def unit_text():
    """The sources with functions that report sizes, and where C places the fields of structs."""
    offsets = ""
    for struct, dtype in STRUCTS.items():
        places = ", ".join(f"offsetof({struct}, {name})" for name in dtype.names)
        offsets += f"const size_t {struct}_offsets[] = {{{places}, sizeof({struct})}};\n"
    return PROLOGUE + offsets


@functools.cache
def folder():
    """A folder for this content of the sources. Those of other contents are deleted."""
    sources = [path.read_text() for path in sorted(SOURCES.glob("*.[ch]"))]
    content = [*sources, *(path.read_text() for path in sorted(TESTS.glob("core_*.[ch]")))]
    content += [unit_text(), str([FLAGS, *map(options_of, targets())]), str(find_compiler())]
    name = hashlib.sha256("".join(content).encode()).hexdigest()[:16]
    parent = ROOT_FOLDER / ".cache/core"
    (parent / name).mkdir(parents=True, exist_ok=True)
    for other in parent.iterdir():
        if other.name != name:
            shutil.rmtree(other, ignore_errors=True)
    return parent / name


def made_once(name, make):
    """The path of a file that make(path) writes, in one of the processes of a session."""
    path = folder() / name
    claim = path.with_suffix(".claim")
    while not path.exists():
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:  # another process makes it, or was killed while it did
            if time.time() - claim.stat().st_mtime > 100:
                claim.unlink(missing_ok=True)
            time.sleep(0.02)
            continue
        try:
            unfinished = path.with_suffix(f".{os.getpid()}")
            make(unfinished)
            unfinished.rename(path)
        finally:
            claim.unlink(missing_ok=True)
    return path


def library_path(target=None, dtype=np.float64, small=None):
    """The file of the library for a target (the best one) and a pair of number types."""
    target, small = target or targets()[-1], small or dtype
    return made_once(
        f"{target}-{NAMES[dtype]}-{NAMES[small]}.so",
        lambda path: compile(target, dtype, "-shared", "-o", str(path), small=small),
    )


@functools.cache
def library(target=None, dtype=np.float64, small=None):
    """The functions of the core."""
    made = ctypes.CDLL(str(library_path(target, dtype, small)))
    for name in ("learn_rows", "learn_dense_rows", "draw", "place_basis", "place_scratch"):
        getattr(made, name).restype = ctypes.c_int64
    number = ctypes.c_float if (small or dtype) == np.float32 else ctypes.c_double
    for name in ("sum_variances", "multiply_vectors", "find_length", "log_one_plus"):
        getattr(made, name).restype = number
    made.place_dense.restype = ctypes.c_int64
    made.log_one_plus.argtypes = [number]
    return made


def libraries(dtype=np.float64, every=False):
    """Without vectors and with the widest ones, or of every target; of float only the first."""
    if every:
        return [library(target, dtype) for target in targets()]
    few = (targets()[0], targets()[-1]) if dtype == np.float64 else targets()[:1]
    return [library(target, dtype) for target in few]


# Arrays.


def padded(n):
    return -(-n // LANES) * LANES


def aligned(shape, dtype=np.float64, fill=0.0):
    """An array that begins at a multiple of 64 bytes."""
    size = int(np.prod(shape))
    room = np.full(size + ALIGNMENT, fill, dtype)
    start = -room.ctypes.data % ALIGNMENT // room.itemsize
    return room[start : start + size].reshape(shape)


def zeros(*shape, dtype=np.float64):
    """Zeros that begin at a multiple of 64 bytes."""
    return aligned(shape, dtype)


def aligned_copy(vector, dtype=np.float64):
    """The numbers of a vector, followed by zeros up to a multiple of 8 numbers."""
    copy = aligned(padded(len(vector)), dtype)
    copy[: len(vector)] = vector
    return copy


def matrix(A, stride=None, dtype=np.float64):
    """A (n×k) in rows of `stride` numbers; there are PADDED(n) rows."""
    A = np.asarray(A)
    made = aligned((padded(len(A)), stride or padded(A.shape[1])), dtype)
    made[: len(A), : A.shape[1]] = A
    return made


def pointer(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def size(number):
    return ctypes.c_ssize_t(number)


def number(value):
    return ctypes.c_double(value)


# Structs.

KINDS = {"i8": ctypes.c_int64, "f8": ctypes.c_double, "u8": ctypes.c_void_p}
STRUCTS = {
    "Scores": layout.SCORES,
    "Result": layout.RESULT,
    "Basis": layout.BASIS,
    "Dense": layout.DENSE,
}


@functools.cache
def struct(dtype):
    """The ctypes.Structure of a dtype of layout.py, with double as SMALL."""
    members = [(name, dtype.fields[name][0]) for name in dtype.names]
    fields = [(name, struct(d) if d.names else KINDS[d.str[1:]]) for name, d in members]
    return type("Struct", (ctypes.Structure,), {"_fields_": fields})


class Row(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("gradient", "offset", "label")]
    _fields_ += [("weight_root", ctypes.c_double)]


RESULTS = ["prediction", "residual", "left", "variance", "length"]
OF_HEADS = RESULTS[:3]
SCORES = ["scale", "recent_scale", "neighbours", "last", "surprise"]


class Struct:
    """What both kinds of learners have: a struct, a block of numbers, and rows."""

    def array(self, place, *shape, dtype=np.float64):
        """An array of the struct's block."""
        for block in self.blocks:
            begin = place - block.ctypes.data
            if 0 <= begin < max(1, block.nbytes):
                count = int(np.prod(shape)) * np.dtype(dtype).itemsize
                return block[begin : begin + count].view(dtype).reshape(shape)
        raise AssertionError("the address is outside of the blocks")

    def call(self, function, *arguments):
        return getattr(self.library, function)(ctypes.byref(self.struct), *arguments)

    def learn(self, x, y, weight=1.0, offset=None):
        """Learn one row; returns the code."""
        x, y = np.array(x, self.real), np.array(y, float).reshape(-1)
        offset = None if offset is None else np.array(offset, float).reshape(-1)
        row = Row(x.ctypes.data, None if offset is None else offset.ctypes.data, y.ctypes.data)
        row.weight_root = weight**0.5
        return self.call(self.names[0], ctypes.byref(row))

    def learn_all(self, X, Y, weights=None):
        weights = np.ones(len(X)) if weights is None else weights
        for x, y, weight in zip(X, Y, weights, strict=True):
            assert self.learn(x, y, weight) == DONE
        return self

    def learn_rows(self, X, Y, weights=None):
        """Learn many rows by one call: how many, the code of the next one, and results."""
        X = np.ascontiguousarray(X, self.real)
        Y = np.ascontiguousarray(Y, float).reshape(len(X), -1)
        roots = None if weights is None else np.sqrt(np.array(weights, float))
        code, heads = ctypes.c_int64(), (len(X), self.heads)
        outputs = {name: np.zeros(heads if name in OF_HEADS else len(X)) for name in RESULTS}
        outputs |= {name: np.zeros(len(X)) for name in ("novelty", "rank")}
        rows = (ctypes.c_void_p * 8)(0, *X.shape, X.ctypes.data, None, Y.ctypes.data)
        rows[6], rows[7] = None if roots is None else roots.ctypes.data, len(X)
        results = (ctypes.c_void_p * 7)(*(a.ctypes.data for a in outputs.values()))
        count = self.call(self.names[1], rows, results, ctypes.byref(code))
        return count, code.value, outputs

    def scores(self, name):
        s = self.struct.scores
        columns = s.candidates if name == "surprise" else s.candidates * s.heads
        return self.array(getattr(s, name), columns)

    def result(self, name):
        found, s = getattr(self.struct.result, name), self.struct.scores
        if name not in RESULTS:
            return found
        shape = s.candidates * s.heads if name in OF_HEADS else s.candidates
        return self.array(found, shape)


class Learner(Struct):
    """A learner that remembers directions: Basis of core.h."""

    names = "learn_row", "learn_rows"

    def __init__(
        self, p, m=None, noise=(1.0,), kind="principal", heads=1, bias=False, forgetting=1.0,
        drift=0.0, tailed=True, linear=True, capacity=None, chosen=0, seed=0, real=np.float64,
        library=None,
    ):  # fmt: skip
        self.library = library or globals()["library"](None, real, np.float64)
        self.p, self.heads, self.real, self.noise = p, heads, real, np.atleast_1d(noise)
        self.kind, noisy, e = kind, bool(self.noise[0] > 0), len(self.noise)
        most = {"unlimited": capacity or 64, "nothing": 0}.get(kind, m)
        usual = most + max(8, int(2.5 * most**0.5), min(16, (1 << 15) // max(1, p)))
        capacity = capacity or (most if kind == "unlimited" else min(usual, p + 8))
        s = self.struct = struct(layout.BASIS)(
            parameters=p, bias=bias, kind=MEMORIES.index(kind), most=most, capacity=capacity,
            linear=linear, chosen=chosen, has_tail=kind == "principal", is_noisy=noisy, seed=seed,
            forgetting=forgetting, drift=drift, limit=float(np.finfo(real).max) / 4,
            has_history=not noisy or kind not in ("principal", "unlimited"), prior_variance=1.0,
        )  # fmt: skip
        s.scores.heads, s.scores.candidates = heads, e
        self.call("size_basis")
        sizes = [self.call(name, None) for name in ("place_basis", "place_scratch")]
        self.blocks = [aligned(count, np.uint8) for count in sizes]
        for name, block in zip(("place_basis", "place_scratch"), self.blocks, strict=True):
            self.call(name, pointer(block))
        self.rows = aligned((capacity, s.stride), real)
        self.base = aligned((s.columns, s.stride), real)
        s.rows, s.base = self.rows.ctypes.data, self.base.ctypes.data
        self.array(s.noise, e)[:], self.array(s.tailed, e)[:] = self.noise, tailed

    def field(self, name, *shape, stride="width"):
        """The part of a matrix or vector that is in use."""
        s = self.struct
        if len(shape) == 1:
            return self.array(getattr(s, name), *shape)
        return self.array(getattr(s, name), shape[0], getattr(s, stride))[:, : shape[1]]

    @property
    def W(self):
        return self.field("W", self.struct.rank, self.struct.stored)

    @property
    def M(self):
        return self.field("M", self.struct.stored, self.struct.stored)

    @property
    def Q(self):
        return self.rows[: self.struct.stored, : self.p].astype(float)

    @property
    def U(self):
        return (self.W @ self.Q).T

    @property
    def sigma(self):
        return self.field("sigma", self.struct.rank).copy()

    def root(self, i):
        """Triangular root i."""
        s = self.struct
        place = s.roots + 8 * i * (s.most + 1) * s.vector
        return self.array(place, s.most + 1, s.vector)[: s.rank, : s.rank]

    @property
    def w(self):
        """The parameters, candidates×heads×p."""
        out = aligned(self.base.shape, self.real)
        self.call("copy_parameters", pointer(out))
        return out[:, : self.p].astype(float).reshape(len(self.noise), self.heads, self.p)

    def state(self):
        """All that a row may change, bit by bit."""
        s, e = self.struct, len(self.noise)
        names = "stored rank seen compactions draws has_history parameter_bound prior_variance"
        names += " dropped_energy tail_rows tail_dropping"
        numbers = [getattr(s, name) for name in names.split()]
        numbers += [s.scores.rows, s.scores.unfitted]
        arrays = [self.W, self.M, self.rows[: s.stored], self.base, self.field("sigma", s.rank)]
        arrays += [self.field("shift", s.columns, s.stored)]
        arrays += [self.array(place, e) for place in (s.tail_level, s.tail_dropped)]
        arrays += [self.scores(name) for name in SCORES]
        if s.has_history:
            arrays.append(self.field("history", s.stored, s.stored))
        if self.kind not in ("principal", "nothing"):
            arrays += [self.root(i) for i in range(1 + e * bool(s.is_noisy))]
        return numbers, [array.tobytes() for array in arrays]


class Filter(Struct):
    """A learner with a dense P0 = I / prior: Dense of core.h."""

    names = "learn_dense_row", "learn_dense_rows"

    def __init__(
        self, p, noise=1.0, prior=1.0, forgetting=1.0, drift=None, heads=1, bias=False,
        moves=False, real=np.float64, library=None,
    ):  # fmt: skip
        self.library = library or globals()["library"](None, real, np.float64)
        self.p, self.heads, self.real = p, heads, real
        s = self.struct = struct(layout.DENSE)(
            parameters=p, bias=bias, linear=1, moves=moves or drift is not None, noise=noise,
            forgetting=forgetting, limit=float(np.finfo(real).max) / 4, prior_width=prior**-0.5,
            cutoff=100 * float(np.finfo(real).eps), amplification=1.0, width=prior**-0.5,
        )  # fmt: skip
        s.scores.heads, s.scores.candidates = heads, 1
        self.blocks = [aligned(self.call("place_dense", None), np.uint8)]
        self.call("place_dense", pointer(self.blocks[0]))
        self.triangle = aligned((padded(p), s.stride))
        s.P = self.triangle.ctypes.data
        self.D = self.array(s.D, padded(p))
        self.parameters = self.array(s.w, heads, s.stride, dtype=real)
        self.triangle[range(p), range(p)], self.D[:p] = 1, 1 / prior
        self.set_drift(drift)

    def set_drift(self, drift):
        s = self.struct
        s.drift_kind = NO_DRIFT if drift is None else 1 + np.ndim(drift)
        if s.drift_kind in (NUMBER, DIAGONAL):
            self.drift = np.array(drift, float).reshape(-1)
        elif s.drift_kind == MATRIX:
            e, V = np.linalg.eigh(drift)
            self.root = matrix((V * np.sqrt(np.maximum(e, 0))).T, s.stride)
            self.drift, s.drift_rank = matrix(drift, s.stride), self.p
            s.drift_root = self.root.ctypes.data
        if drift is not None:
            s.drift = self.drift.ctypes.data

    def move(self, A):
        if np.ndim(A) == 0:
            return self.call("move_dense", number(A), None)
        return self.call("move_dense", number(0), pointer(matrix(A.T, self.struct.stride)))

    def arrays(self):
        return b"".join(a.tobytes() for a in (self.triangle, self.D, self.parameters))

    def state(self):
        """All that a row may change but scores."""
        s = self.struct
        numbers = s.seen, s.form, s.wound_up, s.parameter_bound, s.amplification, s.width
        return self.arrays(), numbers

    @property
    def w(self):
        w = self.parameters[:, : self.p].astype(float)
        return w[0] if self.heads == 1 else w.T

    @property
    def P(self):
        A = self.triangle[: self.p, : self.p]
        if self.struct.form == PLAIN:
            return np.tril(A) + np.tril(A, -1).T
        U = np.triu(A.T)
        return (U * self.D[: self.p]) @ U.T
