"""The operations of `tall` for arrays of which each process has a part of the p dimension.

A `Shard` has the shape of the whole, so whoever decides by a size decides alike everywhere. Its
numbers are those of this process, and what is summed over p goes through `Processes`: a step's
products in one message (`read`), those of a second projection in one more (`factors`). The small
numbers that come back are the same, bit by bit, on every process, and so is all that is made of
them. The processes check that, since other processors may round in another way: each message holds
a digest of what is known.
"""

import zlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import linalg

from orfit import small, tall
from orfit.door import Array

# By these powers of two, lengths are made larger or smaller where their squares are no numbers.
RAISED, LOWERED = 2.0**530, 2.0**-530
# Squared lengths that are numbers, with room for sums of many.
LEAST, MOST = 1e-280, 1e300
PIECE = 1 << 20  # random numbers that are drawn at a time


class Processes(Protocol):
    """Who has the other parts. Each must ask for the same, in the same order."""

    count: int
    rank: int

    def sum(self, numbers: Array, digest: int = 0) -> Array:
        """The sum over all processes; a digest that is not the same everywhere is an error."""

    def gather(self, numbers: Array, digest: int = 0) -> Array:
        """The numbers of all processes, one row for each."""

    def join(self, part: Array, bounds: Any) -> Array:
        """The parts of all processes, one behind the other; part r from bounds[r] to the next."""

    def largest(self, number: float) -> float:
        """The largest of all processes; infinite where one is NaN."""


@dataclass(frozen=True)
class Spread:
    """Which process has which part of p: process r has bounds[r] to bounds[r + 1]."""

    processes: Any  # Processes
    bounds: tuple[int, ...]

    @property
    def size(self) -> int:
        return self.bounds[-1]

    @property
    def here(self) -> slice:
        rank = self.processes.rank
        return slice(self.bounds[rank], self.bounds[rank + 1])


@dataclass(frozen=True)
class Met:
    """Products of a shard's columns that were summed before: no need to ask again."""

    rows: Any  # the very ones, with which come the parameters
    products: Array  # n×(s + q), with these
    square: Array  # n×n, with each other

    def times(self, c: Array) -> "Met":
        """Those of the columns times c."""
        square = small.product(c.T, small.product(self.square, c))
        return Met(self.rows, small.product(c.T, self.products), square)

    def over(self, d: Array) -> "Met":
        """Those of the columns, each over a number."""
        return Met(self.rows, self.products / d[:, None], self.square / np.outer(d, d))


class Shard:
    """What this process has of an array with p on one side: of its shape, with fewer numbers."""

    __slots__ = ("axis", "factored", "lengths", "local", "met", "spread", "whole")
    __array_ufunc__ = None  # numbers of NumPy leave arithmetic to us

    def __init__(self, local: Any, spread: Spread, axis: int = 0) -> None:
        """axis: which side of `local` is the part of p."""
        self.local, self.spread, self.axis = local, spread, axis
        self.met: Met | None = None
        self.factored: tuple[Any, Array] | None = None  # `tall.factors` of it
        self.lengths: Array | None = None  # `tall.norms` of it
        self.whole: Any = None  # `joined`, of it

    @property
    def shape(self) -> tuple[int, ...]:
        sides = list(self.local.shape)
        sides[self.axis] = self.spread.size
        return tuple(sides)

    @property
    def dtype(self) -> Any:
        return self.local.dtype

    @property
    def ndim(self) -> int:
        return int(self.local.ndim)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        here = self.spread.here
        return f"<{here.start} to {here.stop} of side {self.axis} of {self.shape}, {self.dtype}>"

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise TypeError("this array is spread over processes; what is here of it is .local")

    def _like(self, local: Any, axis: int | None = None) -> "Shard":
        return Shard(local, self.spread, self.axis if axis is None else axis)

    @property
    def T(self) -> "Shard":
        return self._like(self.local.T, self.local.ndim - 1 - self.axis)

    def __getitem__(self, key: Any) -> "Shard":
        return self._like(self.local[key], self._side(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._side(key)
        self.local[key] = tall.here(value)

    def _side(self, key: Any) -> int:
        """Where p is after such an index, which may not look into it."""
        before, made = 0, 0
        for part in key if isinstance(key, tuple) else (key,):
            if part is None:
                made += 1
            elif before == self.axis:
                if not (isinstance(part, slice) and part == slice(None)):
                    raise IndexError("p is spread over processes, and has no parts by number")
                return made
            else:
                before, made = before + 1, made + (np.ndim(part) > 0 or isinstance(part, slice))
        return made + self.axis - before

    def reshape(self, *shape: Any) -> "Shard":
        """With other sides than p, which is and stays the first."""
        sides = shape[0] if isinstance(shape[0], tuple) else shape
        if self.axis != 0 or sides[0] != self.spread.size:
            raise ValueError(f"p is spread over processes: {self.shape} cannot become {sides}")
        return self._like(self.local.reshape(len(self.local), *sides[1:]))

    def copy(self) -> "Shard":
        return tall.copy(self)  # type: ignore[no-any-return]

    def __add__(self, other: Any) -> "Shard":
        return self._like(self.local + tall.here(other))

    def __sub__(self, other: Any) -> "Shard":
        return self._like(self.local - tall.here(other))

    def __mul__(self, other: Any) -> "Shard":
        return self._like(self.local * tall.here(other))

    def __rmul__(self, other: Any) -> "Shard":
        return self._like(other * self.local)

    def __truediv__(self, other: Any) -> "Shard":
        made = self._like(self.local / tall.here(other))
        if self.met is not None and self.axis == 0 and np.shape(other) == self.shape[1:]:
            made.met = self.met.over(np.asarray(tall.to_numpy(other), np.float64))
        return made


def joined(A: Shard) -> Any:
    """All of A, p×… or (p,), in each process: a message of as many numbers, unless it is known."""
    if A.whole is None:
        found = A.spread.processes.join(tall.to_numpy(A.local), A.spread.bounds)
        A.whole = tall.convert(A.local, found)
    return A.whole


@tall.here.register
def _(A: Shard) -> Any:
    return A.local


@tall.travels.register
def _(A: Shard) -> bool:
    return True


@tall.empty.register
def _(like: Shard, rows: int, size: int) -> Shard:
    here = like.spread.here
    return Shard(tall.empty(like.local, rows, here.stop - here.start), like.spread, 1)


@tall.copy.register
def _(A: Shard) -> Shard:
    return A._like(tall.copy(A.local))


@tall.beside.register
def _(A: Shard, *others: Shard) -> Shard:
    return A._like(tall.beside(A.local, *(other.local for other in others)))


@tall.convert.register
def _(like: Shard, values: Any) -> Any:
    """What is small stays so; what is tall is a shard already."""
    converted = tall.convert(like.local, tall.here(values))
    return values._like(converted) if isinstance(values, Shard) else converted


@tall.to_numpy.register
def _(A: Shard) -> Any:
    """No process has it all: a shard."""
    return A._like(tall.to_numpy(A.local))


@tall.normal.register
def _(like: Shard, random: np.random.Generator, rows: int, over: float = 1.0) -> Shard:
    """The same numbers as one process would draw, of which each keeps its own."""
    size, here = like.spread.size, like.spread.here
    made: Shard = tall.empty(like, rows, size)
    for row in range(rows):
        for start in range(0, size, PIECE):
            drawn = random.standard_normal(min(PIECE, size - start)) / over
            first, last = max(start, here.start), min(start + len(drawn), here.stop)
            if first < last:
                made.local[row, first - here.start : last - here.start] = tall.convert(
                    like.local, drawn[first - start : last - start]
                )
    return made


@tall.inner.register
def _(A: Shard, B: Shard) -> Array:
    found = tall.inner(A.local, B.local)
    return _summed(A, found.ravel()).reshape(found.shape)


@tall.gram.register
def _(A: Shard) -> Array:
    found = tall.gram(A.local)
    return _summed(A, found.ravel()).reshape(found.shape)


@tall.combine.register
def _(A: Shard, c: Array) -> Shard:
    made = A._like(tall.combine(A.local, c))
    if A.met is not None and c.ndim == 2:
        made.met = A.met.times(c)
    return made


@tall.subtract.register
def _(G: Shard, A: Shard, c: Array) -> Shard:
    return G._like(tall.subtract(G.local, A.local, c))


@tall.norms.register
def _(G: Shard) -> Array:
    if G.lengths is None:
        G.lengths = _lengths(_summed(G, _squares(tall.norms(G.local)).ravel()).reshape(3, -1))
    return G.lengths.copy()


@tall.exponents.register
def _(G: Shard) -> Array:
    return _summed(G, tall.exponents(G.local).astype(np.float64))


@tall.finite.register
def _(A: Shard) -> bool:
    return not _summed(A, np.array([0.0 if tall.finite(A.local) else 1.0]))[0]


@tall.largest.register
def _(A: Shard) -> float:
    return float(A.spread.processes.largest(tall.largest(A.local)))


@tall.read.register
def _(
    rows: Shard, base: Shard, G: Shard, known: tuple[Array, ...] = (), measure: bool = False
) -> tuple[Array, Array, Array | None]:
    if G.met is not None and G.met.rows is rows:
        return G.met.products, G.met.square, None
    n = G.shape[1]
    if not n:
        return np.empty((0, len(rows) + len(base))), np.empty((0, 0)), None
    products, square, M = tall.read(rows.local, base.local, G.local, (), measure)
    squares = _squares(_local_lengths(G.local, square))
    parts = [products, square, squares] if M is None else [products, square, squares, M]
    message = np.concatenate([part.ravel() for part in parts])
    total = rows.spread.processes.sum(message, _digest(rows, known))
    ends = np.cumsum([part.size for part in parts])[:-1]
    summed = [t.reshape(p.shape) for t, p in zip(np.split(total, ends), parts, strict=True)]
    G.lengths = _lengths(summed[2])
    least, most = tall.SAFE[tall.numpy_dtype(G)]
    if (((G.lengths > least) & (G.lengths < most)) | (G.lengths == 0)).all():
        G.met = Met(rows, *summed[:2])
    return summed[0], summed[1], None if M is None else summed[3]


@tall.factors.register
def _(G: Shard, beside: Any = None) -> tuple[Shard, Array]:
    """Each process takes its part apart; of the triangles Rᵣ, below each other, R is made.

        Gᵣ = Qᵣ Rᵣ,     [R₁; R₂; …] = [S₁; S₂; …] R,     G = [Q₁S₁; Q₂S₂; …] R

    The products of Qᵣ travel along with Rᵣ, so those of Q are known.
    """
    if G.factored is None:
        G.factored = _factors(G, beside)
    return G.factored


def _factors(G: Shard, beside: Any) -> tuple[Shard, Array]:
    n, processes = G.shape[1], G.spread.processes
    Q, R = tall.qr(G.local)
    met = np.empty((R.shape[0], 0))
    if beside is not None:
        met = np.hstack([tall.inner(Q, part.local.T) for part in beside])
    message = np.zeros((n, n + met.shape[1]))  # as long everywhere, also where p has a short part
    message[: len(R), :n], message[: len(R), n:] = R, met
    every = processes.gather(message.ravel()).reshape(processes.count, *message.shape)
    S, whole = linalg.qr(every[:, :, :n].reshape(-1, n), mode="economic", check_finite=False)
    rank = min(n, G.spread.size)
    S, whole = S[:, :rank], whole[:rank]
    backward = np.diagonal(whole) < 0
    S[:, backward] *= -1
    whole[backward] *= -1
    S = S.reshape(processes.count, n, rank)
    made = G._like(tall.combine(Q, S[processes.rank][: len(R)]))
    if beside is not None:
        products = np.einsum("pnr,pnb->rb", S, every[:, :, n:])
        made.met = Met(beside[0], products, np.eye(rank))
    return made, whole


def _summed(A: Shard, numbers: Array) -> Array:
    return np.asarray(A.spread.processes.sum(numbers))


def _digest(A: Shard, known: tuple[Array, ...]) -> int:
    """A number for what is small and known: the same wherever that is."""
    if A.spread.processes.count == 1:
        return 0
    found = 0
    for part in known:
        found = zlib.crc32(np.ascontiguousarray(part).data, found)
    return found


def _local_lengths(G: Any, square: Array) -> Array:
    """Of the columns that are here, whose squares are on the diagonal, where they are numbers."""
    found = np.sqrt(np.diagonal(square))
    least, most = tall.SAFE[tall.numpy_dtype(G)]
    safe = ((found > least) & (found < most)).all()
    return np.asarray(found if safe else tall.norms(G))


def _squares(lengths: Array) -> Array:
    """3×n: of lengths lowered, as they are, and raised; one of them is a number."""
    with np.errstate(over="ignore"):
        return np.stack([lengths * LOWERED, lengths, lengths * RAISED]) ** 2


def _lengths(squares: Array) -> Array:
    """Of such squares, or of sums of them."""
    low, plain, high = squares
    with np.errstate(over="ignore"):
        found = np.where(plain < LEAST, np.sqrt(high) / RAISED, np.sqrt(plain))
        return np.asarray(np.where(plain > MOST, np.sqrt(low) / LOWERED, found))
