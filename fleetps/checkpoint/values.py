"""The rows of part files as arrays, for what looks into a checkpoint."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from fleetps.checkpoint.rows import FIRST, Layout, columns_of


@dataclass(frozen=True)
class Rows:
    """Attributes:
    ids: [n] uint64, as the engine has them.
    numbers: [n, layout.full - 1] float64, all columns but the id; nan where a row has no factors.
    """

    ids: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.float64]
    layout: Layout

    def values(self) -> npt.NDArray[np.float64]:
        """[n, dim]: what a model gets; 0 for factors that aren't there."""
        first = self.numbers[:, FIRST - 1 : FIRST]
        factors = self.layout.factors
        return np.nan_to_num(
            np.hstack([first, self.numbers[:, factors.start - 1 : factors.stop - 1]])
        )


def parse_rows(blocks: Iterable[bytes], layout: Layout) -> Rows:
    """The rows of blocks of whole lines."""
    parts = [part for block in blocks for part in _parse(block, layout)]
    if not parts:
        return Rows(np.empty(0, np.uint64), np.empty((0, layout.full - 1)), layout)
    ids, numbers = zip(*parts, strict=True)
    return Rows(np.concatenate(ids), np.concatenate(numbers), layout)


def _parse(block: bytes, layout: Layout) -> Iterable[tuple[Any, Any]]:
    columns = columns_of(block)
    if (columns == layout.full).all():
        yield _table(block, layout.full, layout)
        return
    lines = block.splitlines(keepends=True)
    for width in (layout.short, layout.full):
        text = b"".join(lines[index] for index in np.flatnonzero(columns == width))
        if text:
            yield _table(text, width, layout)


def _table(text: bytes, width: int, layout: Layout) -> tuple[Any, Any]:
    """Ids and numbers of lines of the same width."""
    names = [str(column) for column in range(width)]
    types = {name: pa.float64() for name in names} | {"0": pa.uint64()}
    table = csv.read_csv(
        io.BytesIO(text),
        read_options=csv.ReadOptions(column_names=names),
        parse_options=csv.ParseOptions(delimiter=" "),
        convert_options=csv.ConvertOptions(column_types=types),
    )
    numbers = np.full((table.num_rows, layout.full - 1), np.nan)
    for column in range(1, width):
        numbers[:, column - 1] = table.column(column).to_numpy()
    return table.column(0).to_numpy(), numbers
