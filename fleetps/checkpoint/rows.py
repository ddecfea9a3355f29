"""The text of a sparse table's rows, as the engine writes and reads it.

A part file `part-<server>-<shard>.gz` holds the rows of one shard, a line for each, numbers with 6
digits:

    key slot unseen_days delta_score show click first-value [its state] factors... [their state]

Rows without factors (see docs/tables.md, admission) end before them.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fleet_config.errors import UserError
from fleetps.checkpoint.format import DamagedCheckpoint, TableRecord

KEY, SHOW, CLICK, FIRST = 0, 4, 5, 6  # columns
_BLOCK = 1 << 22  # bytes


@dataclass(frozen=True)
class Layout:
    """Where in a line what is.

    Attributes:
        dim: values of a row, the first one included.
        rule: name of the rule whose state the row carries.
    """

    dim: int
    rule: str

    @property
    def short(self) -> int:
        """Columns of a row without factors."""
        return FIRST + 1 + self._state[0]

    @property
    def full(self) -> int:
        """Columns of a row with factors."""
        return self.short + self.dim - 1 + self._state[1]

    @property
    def factors(self) -> slice:
        """Columns of the values after the first."""
        return slice(self.short, self.short + self.dim - 1)

    @property
    def _state(self) -> tuple[int, int]:
        """Columns of the state of the first value, and of the factors."""
        factors = self.dim - 1
        return {
            "naive": (0, 0),
            "adagrad": (1, 1),
            "std_adagrad": (1, factors),
            "adam": (4, 2 * factors + 2),  # two moments for each, two powers of betas
            "shared_adam": (4, 4),
        }[self.rule]


def layout_of(record: TableRecord) -> Layout:
    """Of a table's rows."""
    return Layout(record.dim, record.held_as)


def part_name(server: int, shard: int) -> str:
    """As the engine calls the file of a shard."""
    return f"part-{server:03}-{shard:05}.gz"


def part_names(servers: int, shards: int) -> list[str]:
    """The files of a table; each server holds as many consecutive shards."""
    each = -(-shards // servers)
    return [part_name(shard // each, shard) for shard in range(shards)]


def read_lines(file: Path) -> Iterator[bytes]:
    """The text of a part file in blocks of whole lines.

    Raises:
        DamagedCheckpoint: the file can't be unpacked to its end, or ends within a line.
    """
    rest = b""
    for block in _unpacked(file):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
    if rest:
        raise DamagedCheckpoint(f"{file}: is damaged: its last line has no end")


def _unpacked(file: Path) -> Iterator[bytes]:
    try:
        if not file.stat().st_size:
            raise DamagedCheckpoint(f"{file}: is damaged: it is empty")
        with gzip.open(file) as stream:
            while block := stream.read(_BLOCK):
                yield block
    except EOFError:
        raise DamagedCheckpoint(f"{file}: is damaged: it ends too early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DamagedCheckpoint(f"{file}: is damaged: {error}") from None
    except FileNotFoundError:
        raise DamagedCheckpoint(f"{file}: is missing") from None
    except OSError as error:
        raise UserError(f"{file}: can't be read: {error.strerror}") from None


def columns_of(block: bytes) -> npt.NDArray[np.int64]:
    """How many columns each line has."""
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    blanks = np.flatnonzero(text == ord(" "))
    return np.diff(np.searchsorted(blanks, ends), prepend=0) + 1


def count_rows(file: Path, layout: Layout, shard: int, shards: int) -> int:
    """Read a part file completely; returns its rows.

    Raises:
        DamagedCheckpoint: as `read_lines`, or it has a row of another width, of another shard or
            with values that are no numbers.
    """
    rows = 0
    for block in read_lines(file):
        columns = columns_of(block)
        wrong = np.flatnonzero((columns != layout.full) & (columns != layout.short))
        if len(wrong):
            raise DamagedCheckpoint(
                f"{file}:{rows + int(wrong[0]) + 1}: a row has {columns[wrong[0]]} columns, but "
                f"{layout.short} or {layout.full} with dim {layout.dim} and rule {layout.rule}"
            )
        bad = block.find(b"n")  # of nan or inf
        if bad >= 0:
            line = rows + block.count(b"\n", 0, bad) + 1
            raise DamagedCheckpoint(f"{file}:{line}: a row holds nan or inf")
        _check_shard(file, rows, block, shard, shards)
        rows += len(columns)
    return rows


def _check_shard(file: Path, before: int, block: bytes, shard: int, shards: int) -> None:
    """Of the first row; the engine would answer for its id with a new row."""
    key = block[: block.index(b" ")]
    if not key.isdigit():
        raise DamagedCheckpoint(f"{file}:{before + 1}: a row begins with {key[:30]!r}, no id")
    if int(key) % shards != shard:
        raise DamagedCheckpoint(
            f"{file}:{before + 1}: id {int(key)} belongs to shard {int(key) % shards} of {shards}, "
            f"not to {shard}"
        )
