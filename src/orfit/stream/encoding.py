"""From columns by name to numbers: which there are, what each holds, what is to be learned."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from orfit import schema, validation
from orfit.schema import Fields
from orfit.stream import columns
from orfit.stream.block import Block, StreamError
from orfit.stream.columns import FAR, HUGE, Kind, Number, kind_of, numbers, texts
from orfit.validation import Array

MISSING = ("error", "skip", "mean")
MOST_CLASSES = 10_000
MOST_WIDE = 1 << 16
LEFT_OUT = "such rows are left out, and counted as skipped"
FILLED = "the mean of the first rows stands for such values"


@dataclass(frozen=True)
class Choice:
    """What a user says of the columns."""

    targets: tuple[str, ...]
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: str = "error"
    classify: bool = False
    width: int = 32
    trend: bool = False

    def check(self) -> None:
        """Raise where a user has said something that cannot be."""
        if not self.targets:
            raise StreamError("--target must name the column to predict")
        if len({*self.targets}) < len(self.targets):
            raise StreamError("--target names a column twice")
        if self.classify and len(self.targets) > 1:
            raise StreamError("--classify takes a single --target")
        both = [name for name in self.targets if name in (*self.ignore, *self.only)]
        if both:
            raise StreamError(f"column {both[0]} is the target: it is not learned from")
        if not 1 <= self.width <= MOST_WIDE:
            raise StreamError(f"--width must be from 1 to {MOST_WIDE}; it is {self.width}")

    def inputs(self, names: Sequence[str], name: str) -> list[str]:
        """The columns to learn from, of those that an input has."""
        for option, wanted in (
            ("--target", self.targets),
            ("--ignore", self.ignore),
            ("--only", self.only),
            ("--categories", self.categories),
        ):
            unknown = [column for column in wanted if column not in names]
            if unknown:
                raise StreamError(
                    f"{name} has no column {unknown[0]}, which {option} names; it has "
                    f"{', '.join(names):.500}"
                )
        left = [n for n in names if n not in self.targets and n not in self.ignore]
        return [n for n in left if not self.only or n in self.only]


class Amounts:
    """Targets that are numbers, in units of their first rows."""

    classes: list[str] | None = None

    def __init__(self, scales: list[Number]) -> None:
        self.scales = scales
        self.mean = np.array([scale.mean for scale in scales])
        self.scale = np.array([scale.scale for scale in scales])

    @property
    def count(self) -> int:
        return len(self.scales)

    def encode(self, block: Block, targets: tuple[str, ...]) -> Array:
        return _scaled(block.columns.made(numbers, targets).copy(), self.mean, self.scale)

    def state(self) -> dict[str, Any]:
        return {"scales": [scale.settings() for scale in self.scales], "classes": None}


class Classes:
    """One target, of which each text is a class; there may be more as the stream goes on."""

    mean, scale = np.zeros(1), np.ones(1)  # an index has no unit

    def __init__(self, classes: list[str]) -> None:
        self.classes = classes
        self._index = {name: i for i, name in enumerate(classes)}

    @property
    def count(self) -> int:
        return len(self.classes)

    def encode(self, block: Block, targets: tuple[str, ...]) -> Array:
        """The index of each row's class, NaN where there is none."""
        coded = texts(block.columns[targets[0]]).dictionary_encode()
        index = np.array([self._of(name) for name in coded.dictionary.to_pylist()], float)
        missing = np.asarray(coded.indices.is_null())
        codes = np.asarray(coded.indices.fill_null(0), int)
        Y = index[codes] if len(index) else np.full(len(codes), np.nan)
        return np.where(missing, np.nan, Y)[:, None]

    def _of(self, name: str) -> int:
        if name not in self._index:
            if len(self.classes) >= MOST_CLASSES:
                raise StreamError(
                    f"the target has more than {MOST_CLASSES} classes: is it a number?"
                )
            self._index[name] = len(self.classes)
            self.classes = [*self.classes, name]
        return self._index[name]

    def state(self) -> dict[str, Any]:
        return {"scales": [], "classes": self.classes}


@dataclass
class Encoded:
    """Rows as numbers: those that can be learned.

    X: n×d. Y: n×q, or n×1 with the index of the class. rows: which of the block they are.
    skipped: how many others there are. filled: n×d, where the mean stands for a value.
    notices: what a user would want to know.
    """

    X: Array
    Y: Array
    rows: Array
    skipped: int
    filled: Array
    notices: list[str] = field(default_factory=list)


class Encoding:
    """What becomes of each column, frozen after the first rows."""

    def __init__(
        self,
        choice: Choice,
        kinds: dict[str, Kind],
        target: Amounts | Classes,
        far: Collection[str] = (),
    ) -> None:
        self.choice, self.kinds, self.target = choice, kinds, target
        self.far = [*far]  # columns that have left their scale, and were told
        self.odd: set[str] = set()  # those with a value that is wrong, told in this run
        wide = [kind.width for kind in kinds.values()]
        self.width = sum(wide)  # d, how many numbers a row becomes
        starts = np.cumsum([0, *wide])
        self._starts = dict(zip(kinds, starts.tolist(), strict=False))  # of each column, in a row
        self._numbers = tuple(name for name, kind in kinds.items() if isinstance(kind, Number))
        self._mean = np.repeat([kind.mean for kind in kinds.values()], wide)
        self._scale = np.repeat([kind.scale for kind in kinds.values()], wide)

    @classmethod
    def learned(cls, choice: Choice, blocks: Sequence[Block]) -> "Encoding":
        """From the first rows."""
        import pyarrow as pa

        first = blocks[0]
        inputs = choice.inputs(list(first.columns), first.name)
        whole = {
            name: pa.chunked_array([block.columns[name] for block in blocks]).combine_chunks()
            if len({block.columns[name].type for block in blocks}) == 1
            else pa.chunked_array([texts(block.columns[name]) for block in blocks]).combine_chunks()
            for name in [*inputs, *choice.targets]
        }
        kinds = {
            name: kind_of(
                name,
                whole[name],
                width=choice.width,
                trend=choice.trend,
                category=name in choice.categories,
            )
            for name in inputs
        }
        target: Amounts | Classes
        if choice.classify:
            target = Classes([])
        else:
            scales = [kind_of(n, whole[n], width=1, trend=True) for n in choice.targets]
            for name, scale in zip(choice.targets, scales, strict=True):
                if not isinstance(scale, Number):
                    raise StreamError(
                        f"the target {name} is a {scale.kind}, not a number: with --classify its "
                        "texts are classes"
                    )
            target = Amounts([scale for scale in scales if isinstance(scale, Number)])
        return cls(choice, kinds, target)

    @property
    def numeric(self) -> set[str]:
        """Columns that are read as numbers."""
        found = {*self._numbers}
        return found if self.choice.classify else found | {*self.choice.targets}

    @property
    def unknown(self) -> Array:
        """The standard deviation of each number of a row, where nothing is known of it."""
        return np.concatenate([np.full(k.width, k.unknown) for k in self.kinds.values()])

    @property
    def reads(self) -> list[str]:
        """All columns that are read."""
        return [*self.kinds, *self.choice.targets]

    def encode(self, block: Block, targets: bool = True) -> Encoded:
        """Rows as numbers. targets: whether there must be some; without, Y is NaN."""
        self._check_names(block, targets)
        if block.malformed and self.choice.missing == "error":
            first = block.malformed[0]
            raise StreamError(
                f"{block.name}, {block.unit} {first.line}: {first.why}; --missing skip leaves such "
                "lines out"
            )
        X = _scaled(self._encoded(block), self._mean, self._scale)
        Y = np.full((len(block), max(1, len(self.choice.targets))), np.nan)
        if targets:
            Y = self.target.encode(block, self.choice.targets)
        rows, notices = np.arange(len(block)), list[str]()
        known = targets and validation.finite(X) and validation.finite(Y)
        if not known:
            lacking = {name: np.isnan(X[:, i]) for name, i in self._starts.items()}
            if targets:
                lacking |= dict(zip(self.choice.targets, np.isnan(Y).T, strict=True))
            rows, notices = self._kept(block, lacking)
            X, Y = X[rows], Y[rows]
        notices += self._leaving(X, block, rows)
        filled = np.zeros((len(X), self.width), bool)
        if not known:
            filled = np.isnan(X)
            X = np.nan_to_num(X, nan=0.0, posinf=np.nan, neginf=np.nan)
        return Encoded(X, Y, rows, len(block) - len(rows), filled, notices)

    def _encoded(self, block: Block) -> Array:
        """All columns as numbers, n×d, in their own units; columns of numbers are made at once."""
        if len(self._numbers) == self.width > 0:
            return block.columns.made(numbers, self._numbers).copy()
        X = np.empty((len(block), self.width))
        if self._numbers:
            places = [self._starts[name] for name in self._numbers]
            X[:, places] = block.columns.made(numbers, self._numbers)
        for name, kind in self.kinds.items():
            if not isinstance(kind, Number):
                start = self._starts[name]
                X[:, start : start + kind.width] = kind.encode(block.columns[name])
        return X

    def _check_names(self, block: Block, targets: bool) -> None:
        needed = self.reads if targets else [*self.kinds]
        lacking = [name for name in needed if name not in block.columns]
        if lacking:
            raise StreamError(
                f"{block.name} has no column {lacking[0]}, which was learned from; it has "
                f"{', '.join(block.columns):.500}"
            )

    def _kept(self, block: Block, lacking: dict[str, Array]) -> tuple[Array, list[str]]:
        """The rows to learn, where columns lack some values; an error if they must not.

        And columns with a value that is there, but not what it should be, each told once in a run:
        else dates in another form than the first ones would lose most of a stream in silence.
        """
        found = [(int(np.argmax(lost)), name) for name, lost in lacking.items() if lost.any()]
        if found and self.choice.missing == "error":
            raise StreamError(self._lacks(block, *min(found)))
        lost, notices = np.zeros(len(block), bool), []
        for _, name in found:
            left_out = self.choice.missing == "skip" or name in self.choice.targets
            if left_out:
                lost |= lacking[name]
            wrong = lacking[name] & columns.there(block.columns[name])
            if wrong.any() and name not in self.odd:
                self.odd.add(name)
                what = self._not_wanted(block, name, int(np.argmax(wrong)))
                notices.append(f"{what}; {LEFT_OUT if left_out else FILLED}")
        return np.flatnonzero(~lost), notices

    def _lacks(self, block: Block, row: int, name: str) -> str:
        what = f"{block.where(row)}, column {name}: there is no value"
        if columns.there(block.columns[name][row : row + 1])[0]:
            what = self._not_wanted(block, name, row)
        return (
            f"{what}; --missing skip leaves such rows out, --missing mean fills in the mean of the "
            "first rows"
        )

    def _not_wanted(self, block: Block, name: str, row: int) -> str:
        value, kind = block.columns[name][row].as_py(), self.kinds.get(name)
        wanted = Number.wanted if kind is None else kind.wanted
        why = "is too large" if columns.is_number(value) else f"is not {wanted}"
        return f"{block.where(row)}, column {name}: {value!r:.60} {why}"

    def _leaving(self, X: Array, block: Block, rows: Array) -> list[str]:
        """Columns that leave the scale of the first rows by far, each told once."""
        notices = list[str]()
        if not X.size or (X.max() <= FAR and X.min() >= -FAR):  # which NaN is not
            return notices
        far = np.abs(X) > FAR
        for name, kind in self.kinds.items():
            start = self._starts[name]
            if isinstance(kind, Number) and name not in self.far and far[:, start].any():
                row = int(np.argmax(far[:, start]))
                self.far.append(name)
                value = X[row, start] * kind.scale + kind.mean
                notices.append(
                    f"{block.where(int(rows[row]))}, column {name}: {value:.6g} is "
                    f"{abs(X[row, start]):.0f} standard deviations away from the first rows "
                    f"({kind.mean:.4g} ± {kind.scale:.4g}), whose scale it is learned in"
                )
        return notices

    def state(self) -> dict[str, Any]:
        choice = {n: [*v] if isinstance(v, tuple) else v for n, v in vars(self.choice).items()}
        kinds = [
            {"name": name, "kind": kind.kind, "settings": kind.settings()}
            for name, kind in self.kinds.items()
        ]
        return {
            "choice": choice,
            "kinds": kinds,
            "target": self.target.state(),
            "far": self.far,
        }

    fields: ClassVar[Fields] = {
        "choice": schema.record(
            {
                **dict.fromkeys(("targets", "ignore", "only"), schema.listed(schema.text)),
                "categories": schema.listed(schema.text),
                "missing": schema.one_of(*MISSING),
                "classify": validation.flag,
                "width": validation.count,
                "trend": validation.flag,
            }
        ),
        "kinds": schema.listed(
            schema.record(
                {
                    "name": schema.text,
                    "kind": schema.one_of(*columns.KINDS),
                    "settings": schema.mapping,
                }
            )
        ),
        "target": schema.record(
            {
                "scales": schema.listed(schema.record(Number.fields)),
                "classes": schema.optional(schema.listed(schema.text, most=MOST_CLASSES)),
            }
        ),
        "far": schema.listed(schema.text),
    }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "Encoding":
        """From what `state` gave and `fields` has checked."""
        given = {n: tuple(v) if isinstance(v, list) else v for n, v in state["choice"].items()}
        choice, kinds = schema.made(Choice, given), {}
        for made in state["kinds"]:
            kind = columns.KINDS[made["kind"]]
            kinds[made["name"]] = kind(**schema.record(kind.fields)("column", made["settings"]))
        classes = state["target"]["classes"]
        target: Amounts | Classes
        if classes is not None:
            target = Classes(classes)
        else:
            target = Amounts([Number(**scale) for scale in state["target"]["scales"]])
        if choice.classify != (classes is not None) or not choice.targets:
            raise ValueError("what is to be learned does not fit to how")
        if classes is None and target.count != len(choice.targets):
            raise ValueError("each target needs a scale")
        return cls(choice, kinds, target, state["far"])


def _scaled(X: Array, mean: Array, scale: Array) -> Array:
    """(X − mean) / scale, in place of X; NaN where that, or X, is no number to be learned."""
    X = _known(X)
    with np.errstate(over="ignore"):
        X -= mean
        X /= scale
    return _known(X)


def _known(X: Array) -> Array:
    """NaN where a number is not one that can be learned."""
    if not X.size or (X.min() > -HUGE and X.max() < HUGE):  # which NaN is not
        return X
    return np.where(np.abs(X) < HUGE, X, np.nan)
