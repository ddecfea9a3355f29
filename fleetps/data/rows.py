"""Reads MultiSlot rows strictly: Paddle itself reports almost nothing that is malformed."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from fleet_config.errors import UserError
from fleetps.data.dataset import Column, Dataset
from fleetps.data.pipe import DamagedFile, slice_rows

Row = dict[str, list[float] | list[int]]

_COUNT = re.compile(r"[1-9]\d{0,6}")
_ID = re.compile(r"\d{1,19}")
_FLOAT = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_FIRST_RESERVED = 1 << 62


def peek_rows(dataset: Dataset, rows: int) -> list[Row]:
    """Return the first rows of the training split, and check those of every split."""
    result: list[Row] = []
    for name, split in dataset.splits.items():
        if not split.rows:
            continue
        shard = split.shards[0]
        file = dataset.shard_path(shard)
        try:
            blocks = slice_rows(file, 0, min(rows, shard.rows))
            lines = [line for _, text in blocks for line in text.splitlines(keepends=True)]
        except DamagedFile as error:
            raise UserError(str(error)) from error
        parsed = list(validate_rows(lines, dataset.columns, str(file)))
        if name == "train":
            result = parsed
    return result


def validate_rows(lines: Iterable[bytes], columns: Sequence[Column], source: str) -> Iterator[Row]:
    """Parse lines of MultiSlot text; the first one that is wrong is a UserError."""
    for number, line in enumerate(lines, start=1):
        try:
            yield parse_row(line, columns)
        except ValueError as error:
            raise UserError(f"{source}:{number}: {error}; convert the data again") from error


def parse_row(line: bytes, columns: Sequence[Column]) -> Row:
    """Parse one line, with its line end; ValueError says what is wrong with it."""
    if not line.endswith(b"\n"):
        raise ValueError("the line is cut off")
    tokens = line[:-1].decode("ascii", "replace").split(" ")
    row: Row = {}
    position = 0
    for column in columns:
        if position >= len(tokens):
            raise ValueError(f"column {column.name} is missing")
        if not _COUNT.fullmatch(tokens[position]):
            raise ValueError(
                f"column {column.name} begins with {tokens[position]!r}, not with its count"
            )
        count = int(tokens[position])
        if column.width not in (None, count):
            raise ValueError(f"column {column.name} has {count} values, not {column.width}")
        values = tokens[position + 1 : position + 1 + count]
        if len(values) < count:
            raise ValueError(f"column {column.name} has {len(values)} values of {count}")
        row[column.name] = _values(column, values)
        position += 1 + count
    if position < len(tokens):
        raise ValueError(f"{tokens[position]!r} stands behind the last column")
    return row


def _values(column: Column, texts: list[str]) -> list[float] | list[int]:
    if column.kind == "sparse":
        ids = [int(text) if _ID.fullmatch(text) else -1 for text in texts]
        for text, value in zip(texts, ids, strict=True):
            if not 0 <= value < _FIRST_RESERVED:
                raise ValueError(f"column {column.name} has {text!r}, which is not an id")
        return ids
    numbers = [float(text) if _FLOAT.fullmatch(text) else math.nan for text in texts]
    for text, number in zip(texts, numbers, strict=True):
        if not math.isfinite(number):
            raise ValueError(f"column {column.name} has {text!r}, not a finite number")
        if column.kind == "label" and number not in (0, 1):
            raise ValueError(f"the label is {text!r}, not 0 or 1")
    return numbers
