"""Rows of no weight, which make the parts of a `sync` task equally long.

All workers of a sync group must make the same number of steps. A padding row has label 2, dense
values 0 and the engine's padding id in every slot, whose row is zeros, never stored and never
pushed.
"""

from collections.abc import Sequence

from fleetps.data.dataset import Column

PADDING_LABEL = 2
PADDING_ID = 2**64 - 1  # -1 as int64


def padding_rows(columns: Sequence[Column], rows: int) -> str:
    """So many padding rows as MultiSlot text."""
    return _line(columns) * rows


def _line(columns: Sequence[Column]) -> str:
    value = {"label": str(PADDING_LABEL), "dense": "0", "sparse": str(PADDING_ID)}
    words = []
    for column in columns:
        width = column.width or 1
        words += [str(width), *[value[column.kind]] * width]
    return " ".join(words) + "\n"
