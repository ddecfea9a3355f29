"""What every raw format gives a conversion: parsed blocks of rows, and the bad rows left out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fleetps.data.badrows import BadRows
from fleetps.data.pipe import Advance
from fleetps.data.schema import Schema


@dataclass(frozen=True)
class Parsed:
    """The good rows of a block, by column: dense ones are doubles, the others text."""

    labels: npt.NDArray[np.int8]
    columns: Mapping[str, pa.Array]
    rows: npt.NDArray[np.int64]  # where each row stands in the whole input
    total: int
    bad: BadRows

    def only(self, chosen: npt.NDArray[np.bool_]) -> "Parsed":
        """Return a part of the rows."""
        if chosen.all():
            return self
        mask = pa.array(chosen)
        columns = {name: column.filter(mask) for name, column in self.columns.items()}
        return Parsed(self.labels[chosen], columns, self.rows[chosen], self.total, self.bad)


class Source(Protocol):
    """Raw data that can be read several times."""

    schema: Schema
    bytes: int

    def count_rows(self, advance: Advance) -> int:
        """Count all rows, good or bad."""

    def blocks(self, advance: Advance) -> Iterator[Callable[[], Parsed]]:
        """Read block by block; parsing is left to the caller, for a thread of its choice."""


def first_bad_column(label: str, labels: pa.Array, dense: Mapping[str, pa.Array]) -> dict[int, str]:
    """Return the bad rows, each with the name of the column that makes it so."""
    found: dict[int, str] = {}
    _note(found, label, pc.is_in(labels, pa.array([0.0, 1.0])))
    for name, values in dense.items():
        _note(found, name, pc.fill_null(pc.is_finite(values), fill_value=True))
    return found


def _note(found: dict[int, str], name: str, good: pa.Array) -> None:
    for position in np.flatnonzero(~good.to_numpy(zero_copy_only=False)):
        found.setdefault(int(position), name)


def describe(label: str, column: str, value: object) -> str:
    """Return the reason why a row is bad."""
    if column != label:
        return f"{column} is {value!r}, not a finite number"
    if value in (None, ""):
        return f"the label ({label}) is missing"
    return f"the label ({label}) is {value!r}, not 0 or 1"
