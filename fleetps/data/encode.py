"""From parsed columns to MultiSlot text: ids, scaled dense values and marks of missing ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fleetps.data.ids import hash_ids
from fleetps.data.rare import ValueCounter
from fleetps.data.schema import Schema
from fleetps.data.source import Parsed
from fleetps.data.text import Texts, float_text, id_text, list_text, row_text

# The value that stands for all rare ones of a slot: no text file holds a NUL.
RARE = "\0rare"
_FLAGS = pa.array(["0", "1"])


@dataclass(frozen=True)
class Slot:
    """The ids of one slot: `indices` into `ids`, one per row or, with `offsets`, several."""

    name: str
    ids: npt.NDArray[np.int64]
    indices: npt.NDArray[np.integer[Any]]
    offsets: npt.NDArray[np.int32] | None = None

    def counts(self) -> npt.NDArray[np.int64]:
        """How often each of the ids occurs."""
        return np.bincount(self.indices, minlength=len(self.ids))


@dataclass(frozen=True)
class Encoded:
    text: memoryview
    rows: int
    ids: npt.NDArray[np.int64]  # those that occur, without order


def slots(parsed: Parsed, schema: Schema) -> Iterator[Slot]:
    """Yield the slots of some rows in the order of the data set's columns."""
    for name in schema.categorical:
        values, indices = _dictionary(parsed.columns[name])
        yield Slot(name, hash_ids(values, name), indices)
    for name in schema.bucketize:
        numbers, indices = _dictionary(parsed.columns[name])
        yield Slot(name, hash_ids(_buckets(numbers), name), indices)
    for name, separator in schema.multi_valued.items():
        yield _multi_valued(name, parsed.columns[name], separator)


def encode(parsed: Parsed, schema: Schema, counter: ValueCounter | None, min_count: int) -> Encoded:
    """Write rows as text; with a counter, values rarer than min_count share an id."""
    columns: list[list[Texts] | pa.Array] = []
    if schema.dense:
        pairs = [_dense(parsed.columns[name], scale) for name, scale in schema.dense.items()]
        columns.append([value for value, _ in pairs] + [mark for _, mark in pairs])
    single: list[Texts] = []
    if schema.slots:
        columns.append(single)
    seen = [np.empty(0, np.int64)]
    for slot in slots(parsed, schema):
        ids = slot.ids
        if counter is not None:
            rare = hash_ids(pa.array([RARE]), slot.name)
            ids = np.where(counter.at_least(ids, min_count), ids, rare)
        seen.append(ids[slot.counts() > 0])
        text = id_text(ids)
        if slot.offsets is None:
            single.append(Texts(text, slot.indices))
        else:
            values = text.take(pa.array(slot.indices))
            columns.append(list_text(pa.ListArray.from_arrays(slot.offsets, values)))
    return Encoded(row_text(parsed.labels, columns), len(parsed.labels), np.concatenate(seen))


def _dictionary(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.integer[Any]]]:
    """Return (values, indices into them); a missing value is the last one, null."""
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    values, indices = encoded.dictionary, encoded.indices
    if indices.null_count:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        indices = indices.fill_null(len(values) - 1)
    return values, indices.to_numpy()


def _dense(column: pa.Array, scale: str) -> tuple[Texts, Texts]:
    """Return (value, mark): a missing value is 0, marked by 1."""
    values, indices = _dictionary(column)
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    if scale == "log":
        numbers = np.sign(numbers) * np.log1p(np.abs(numbers))
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return Texts(float_text(numbers), indices), Texts(_FLAGS, missing)


def _buckets(numbers: pa.Array) -> pa.Array:
    """Return the bucket of each number x: its whole part up to 2, above floor(ln(x)^2)."""
    missing = numbers.is_null().to_numpy(zero_copy_only=False)
    values = numbers.fill_null(0.0).to_numpy(zero_copy_only=False)
    large = values > 2
    # Beyond 2^53 a double has no whole parts.
    whole = np.floor(np.clip(values, -(2.0**53), 2.0)).astype(np.int64)
    logs = np.floor(np.log(np.where(large, values, 1.0)) ** 2).astype(np.int64)
    texts = np.where(large, np.char.add("log", logs.astype(str)), whole.astype(str))
    return pa.array(texts.tolist(), pa.string(), mask=missing)


def _multi_valued(name: str, column: pa.Array, separator: str | None) -> Slot:
    """Split the texts of a column; empty parts are left out, but a row keeps at least one."""
    if separator is not None:
        column = pc.split_pattern(column.cast(pa.binary()).fill_null(b""), separator)
    counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    values, indices = _dictionary(column.flatten())
    empty = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False) == 0
    dropped = empty[indices]
    row = np.repeat(np.arange(len(counts)), counts)
    counts = np.bincount(row[~dropped], minlength=len(counts))
    starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
    none = np.flatnonzero(counts == 0)
    values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    kept = np.insert(indices[~dropped], starts[none], len(values) - 1)
    counts[none] = 1
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return Slot(name, hash_ids(values, name), kept, offsets)
