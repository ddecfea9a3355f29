"""Parquet files, read by Arrow in batches of rows."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fleet_config.errors import UserError
from fleet_config.explain import nearest
from fleetps.data.badrows import BadRows
from fleetps.data.pipe import Advance
from fleetps.data.schema import Schema
from fleetps.data.source import Parsed, describe, first_bad_column

_BATCH_ROWS = 32_768


class ParquetSource:
    """Parquet files of one schema."""

    def __init__(self, files: Sequence[Path], schema: Schema) -> None:
        self.schema = schema
        self.bytes = sum(file.stat().st_size for file in files)
        self._files = files
        self._rows = {file: self._check(file) for file in files}

    def count_rows(self, advance: Advance) -> int:  # noqa: ARG002 - nothing is read
        """Count all rows; the files know."""
        return sum(self._rows.values())

    def blocks(self, advance: Advance) -> Iterator[Callable[[], Parsed]]:
        """Read the rows; each batch is checked and cast when called."""
        row = 0
        for file, rows in self._rows.items():
            first_row, size = row, file.stat().st_size
            try:
                with pq.ParquetFile(file) as parquet:
                    for batch in parquet.iter_batches(_BATCH_ROWS, columns=self.schema.used):
                        yield partial(self._parse, file, batch, row, row - first_row + 1)
                        row += len(batch)
                        if advance is not None:
                            advance(size * len(batch) // max(rows, 1))
            except (OSError, pa.ArrowException) as error:
                raise _damaged(file, error) from error

    def _check(self, file: Path) -> int:
        """Return the number of rows of a file that has all columns, of usable types."""
        try:
            with pq.ParquetFile(file) as parquet:
                types, rows = parquet.schema_arrow, parquet.metadata.num_rows
        except (OSError, pa.ArrowException) as error:
            raise _damaged(file, error) from error
        schema = self.schema
        for name in schema.used:
            if name not in types.names:
                match = nearest(name, types.names)
                hint = f"; did you mean {match}?" if match else ""
                raise UserError(f"{file}: has no column {name}, which the schema names{hint}")
            kind = types.field(name).type
            if name == schema.label or name in schema.dense:
                good, wanted = _is_number(kind), "numbers"
            elif name in schema.multi_valued and schema.multi_valued[name] is None:
                good, wanted = _is_list(kind) and _is_value(kind.value_type), "lists of values"
            else:
                good, wanted = _is_value(kind), "text or whole numbers"
            if not good:
                raise UserError(f"{file}: column {name} holds {kind}, but {wanted} are needed")
        return int(rows)

    def _parse(self, file: Path, batch: pa.RecordBatch, row: int, number: int) -> Parsed:
        schema = self.schema
        dense = {name: batch[name].cast(pa.float64(), safe=False) for name in schema.dense}
        labels = batch[schema.label].cast(pa.float64(), safe=False)
        columns = {name: _texts(batch[name]) for name in schema.categorical}
        columns |= {name: _texts(batch[name]) for name in schema.multi_valued} | dense
        bad = BadRows()
        found = first_bad_column(schema.label, labels, dense)
        for position in sorted(found):
            name = found[position]
            reason = describe(schema.label, name, batch[name][position].as_py())
            bad.add(
                f"{file}: row {number + position}",
                reason,
                str(batch.slice(position, 1).to_pylist()[0]),
            )
        good = np.ones(len(batch), np.bool_)
        good[list(found)] = False
        clicked = labels.fill_null(0).to_numpy(zero_copy_only=False) == 1
        rows = np.arange(row, row + len(batch))
        return Parsed(clicked.astype(np.int8), columns, rows, len(batch), bad).only(good)


def _texts(column: pa.Array) -> pa.Array:
    """Return values as text: a whole number has the id that its digits have in a text file."""
    if _is_list(column.type):
        return column.cast(pa.list_(pa.string()))
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return pc.dictionary_encode(column.cast(pa.string()))


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_value(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _damaged(file: Path, error: Exception) -> UserError:
    return UserError(f"{file}: is not a readable Parquet file: {' '.join(str(error).split())}")
