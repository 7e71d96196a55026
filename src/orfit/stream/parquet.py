"""Parquet: columns with types, in groups of rows, of which those before a position are not read."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orfit.stream.block import Block, Columns, Position, StreamError
from orfit.stream.inputs import told
from orfit.stream.pieces import shorter
from orfit.stream.reader import Limits, check_names
from orfit.stream.values import without_nan
from orfit.validation import Array

MAGIC = b"PAR1"
BUFFER = 1 << 18  # bytes of a column that are read at once: a group may be larger than the memory


class Parquet:
    """A parquet file."""

    def __init__(self, name: str, path: str, limits: Limits) -> None:
        self.name, self._path, self._limits = name, path, limits
        self._check_magic()
        with self._open() as file, self._told():
            self._schema = file.schema_arrow
            self.rows = int(file.metadata.num_rows)
            self.names = list(self._schema.names)
        check_names(name, self.names)

    def blocks(
        self, start: Position, columns: Sequence[str], numeric: Collection[str]
    ) -> Iterator[Block]:
        """From a position in it on."""
        for column in columns:
            self._check_type(column)
        row = start.offset
        if row > self.rows:
            raise StreamError(shorter(self.name))
        with self._open() as file:
            with self._told():
                same = file.schema_arrow == self._schema and file.metadata.num_rows == self.rows
            if not same:
                raise StreamError(f"{self.name} has changed while it was read")
            ends = self._group_ends(file.metadata)
            group = int(np.searchsorted(ends, row, side="right"))  # the first not wholly read
            batches = self._batches(file, range(group, len(ends)), columns)
            skip = row - (int(ends[group - 1]) if group else 0)
            for batch in batches:
                if skip >= len(batch):
                    skip -= len(batch)
                    continue
                rest = batch.slice(skip)
                skip = 0
                count = len(rest)
                yield Block(
                    columns=Columns(
                        {
                            column: self._values(rest.column(column), column, column in numeric)
                            for column in columns
                        }
                    ),
                    name=self.name,
                    unit="row",
                    lines=np.arange(row + 1, row + count + 1),
                    offsets=np.arange(row, row + count),
                    records=np.arange(count),
                    start=Position(start.file, row, row + 1),
                    end=Position(start.file, row + count, row + count + 1),
                )
                row += count
            if row != self.rows:
                raise StreamError(f"{self.name} has {row} rows, and says that it has {self.rows}")

    def share(self, position: Position) -> float:
        """By rows."""
        return min(1.0, position.offset / self.rows) if self.rows else 1.0

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with self._told():
            file = pq.ParquetFile(self._path, buffer_size=BUFFER, pre_buffer=False)
        with file:
            yield file

    def _group_ends(self, metadata: Any) -> Array:
        """For each group, how many rows there are up to its end."""
        with self._told():
            rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        if sum(rows) != self.rows or min(rows, default=0) < 0:
            raise StreamError(f"{self.name}: this cannot be read as parquet (its counts differ)")
        return np.cumsum(np.array(rows, dtype=np.int64))

    def _batches(self, file: Any, groups: Sequence[int], columns: Sequence[str]) -> Iterator[Any]:
        for group in groups:  # each begins a batch: batches do not depend on where reading starts
            with self._told():
                batches = file.iter_batches(
                    batch_size=self._limits.rows,
                    row_groups=[group],
                    columns=list(columns),
                    use_threads=False,
                )
            while True:
                with self._told():
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch

    @contextmanager
    def _told(self, column: str | None = None) -> Iterator[None]:
        """Whatever pyarrow raises of a damaged file, and it raises many kinds, in a sentence."""
        what = "this" if column is None else f"column {column!r}"
        try:
            yield
        except Exception as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise StreamError(
                f"{self.name}: {what} cannot be read as parquet ({said[0]})"
            ) from None

    def _check_magic(self) -> None:
        with told(self.name), open(self._path, "rb") as file:
            head = file.read(len(MAGIC))
            if not head:
                raise StreamError(f"{self.name} is empty")
            file.seek(-min(len(MAGIC), file.seek(0, 2)), 2)
            tail = file.read()
        if head != MAGIC:
            raise StreamError(f"{self.name}: this is not parquet, though its name or --format says")
        if tail != MAGIC:
            raise StreamError(f"{self.name}: the parquet data is cut short, or still being written")

    def _check_type(self, name: str) -> None:
        kind = _plain(self._schema.field(name).type)
        types = pa.types
        if not (
            types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_decimal(kind)
            or types.is_boolean(kind)
            or _is_text(kind)
            or types.is_date(kind)
            or types.is_timestamp(kind)
            or types.is_null(kind)
        ):
            raise StreamError(
                f"{self.name}: column {name!r} holds {kind}; only numbers, texts, dates, times "
                f"with a date and truths can be learned from"
            )

    def _values(self, values: Any, name: str, numeric: bool) -> Any:
        """Numbers, texts, dates or truths, each in one way."""
        kind = values.type
        with self._told(name):
            values.validate(full=True)  # a damaged file may hold texts that are none
            if kind != _plain(kind):
                values = values.cast(_plain(kind))
                kind = values.type
            if _is_text(kind):
                return values.cast(pa.string())
            if pa.types.is_float16(kind):  # not every version can cast it
                wide = values.to_numpy(zero_copy_only=False).astype(np.float64)
                return pa.array(wide, from_pandas=True)
            number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            if pa.types.is_decimal(kind) or (numeric and number):
                values = pc.cast(values, pa.float64(), safe=False)  # to the nearest
            elif numeric and pa.types.is_null(kind):
                values = values.cast(pa.float64())
            return without_nan(values) if pa.types.is_floating(values.type) else values


def _plain(kind: Any) -> Any:
    """The type of the values, where they are stored by number."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    types = pa.types
    view = getattr(types, "is_string_view", None)  # not in every version
    return bool(types.is_string(kind) or types.is_large_string(kind) or (view and view(kind)))
