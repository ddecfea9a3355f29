"""Rows as MultiSlot text, made column by column: `<n> v1 .. vn` for each column, in order.

Writing numbers as text is the hot spot of every converter, so nothing here is per row. A number
is written once per block, however often it occurs, with the blank that stands before it; then one
take of Arrow, over all places of all rows, copies the text together in C++.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = 6


class Texts(NamedTuple):
    """A text for each row: `values[indices]`."""

    values: pa.Array
    indices: npt.NDArray[np.integer[Any]]


def float_text(values: npt.NDArray[np.float64]) -> pa.Array:
    """Return finite numbers as text with 6 significant digits."""
    numbers = values.astype(np.float64)
    size = np.abs(numbers)
    exponent = np.floor(np.log10(np.where(size > 0, size, 1.0)))
    # A power of ten below 10^22 is exact in binary, so the quotient is the double nearest to a
    # decimal number of 6 digits, and its shortest text is that number.
    power = 10.0 ** np.clip(_DIGITS - 1 - exponent, 0, 22)
    coarse = 10.0 ** np.clip(exponent - (_DIGITS - 1), 0, 22)
    rounded = np.rint(numbers / coarse * power) / power * coarse
    return pa.array(rounded + 0.0).cast(pa.string())  # + 0.0: no "-0"


def id_text(ids: npt.NDArray[np.int64]) -> pa.Array:
    """Return ids as text."""
    return pa.array(ids).cast(pa.string())


def list_text(lists: pa.Array) -> pa.Array:
    """Return lists of texts as multi-valued columns: "2 11 12"."""
    counts = pc.list_value_length(lists).cast(pa.string())
    return pc.binary_join_element_wise(counts, pc.binary_join(lists, " "), " ")


def row_text(
    labels: npt.NDArray[np.int8], columns: Sequence[Sequence[Texts] | pa.Array]
) -> memoryview:
    """Return the text of rows.

    A column of fixed width is a sequence with the texts of each of its values; a multi-valued
    column is one array, made by `list_text`.
    """
    rows = len(labels)
    if not rows:
        return memoryview(b"")
    # Each row begins with the line end of the row before, which spares a pass over the text.
    pieces = [Texts(pa.array(["\n1 0", "\n1 1"]), labels)]
    for column in columns:
        if isinstance(column, pa.Array):
            pieces.append(Texts(_prefixed(" ", column), np.arange(rows)))
        else:
            prefixes = [f" {len(column)} "] + [" "] * (len(column) - 1)
            for prefix, (values, indices) in zip(prefixes, column, strict=True):
                pieces.append(Texts(_prefixed(prefix, values), indices))
    flat = np.empty(rows * len(pieces) + 1, np.int32)
    places = flat[:-1].reshape(rows, len(pieces))
    first = 0
    for number, (values, indices) in enumerate(pieces):
        np.add(indices, first, out=places[:, number], casting="unsafe")
        first += len(values)
    flat[-1] = first
    values = pa.concat_arrays([*(piece.values for piece in pieces), pa.array(["\n"])])
    text = values.take(pa.array(flat))
    _, offsets, data = text.buffers()
    end = np.frombuffer(offsets, np.int32)[len(text)]
    return memoryview(data)[1:end]


def _prefixed(prefix: str, values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(prefix, values, "")
