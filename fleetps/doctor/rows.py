"""The first rows of a shard against the columns of its data set."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from fleetps.data.dataset import Column
from fleetps.data.pipe import slice_rows

ID_LIMIT = 1 << 62


def first_mistake(shard: Path, rows: int, columns: Sequence[Column]) -> str | None:
    """What is wrong with the first bad one of the first `rows` rows: `file:line: ...`."""
    text = b"".join(block for _, block in slice_rows(shard, 0, rows))
    for number, line in enumerate(text.splitlines(), start=1):
        mistake = row_mistake(line.decode("ascii", "replace"), columns)
        if mistake:
            return f"{shard}:{number}: {mistake}"
    return None


def row_mistake(line: str, columns: Sequence[Column]) -> str | None:
    """What is wrong with a MultiSlot row: for each column its count and its values."""
    tokens = iter(line.split(" "))
    for column in columns:
        count = next(tokens, "")
        if not count.isdigit() or count == "0":
            return f"column {column.name} begins with {count!r} in place of its count"
        if column.width is not None and int(count) != column.width:
            return f"column {column.name} has {count} values in place of {column.width}"
        values = list(islice(tokens, int(count)))
        if len(values) < int(count):
            return f"the row ends in column {column.name}"
        mistake = next(_bad_values(values, column), None)
        if mistake is not None:
            return f"column {column.name} has the value {mistake!r}"
    if next(tokens, None) is not None:
        return "more values than the columns take"
    return None


def _bad_values(values: Sequence[str], column: Column) -> Iterator[str]:
    for value in values:
        if column.kind == "label":
            good = value in ("0", "1")
        elif column.kind == "dense":
            good = _is_finite(value)
        else:
            good = value.isdigit() and int(value) < ID_LIMIT
        if not good:
            yield value


def _is_finite(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False
