"""What a checkpoint says about the job's progress, so that another run can go on from there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from fleet_config.errors import UserError
from fleetps.coordinator.messages import Slice
from fleetps.coordinator.reports import EpochResult
from fleetps.coordinator.splits import is_in

# (first row, number of rows), sorted, not touching each other, by file
Ranges = dict[str, tuple[tuple[int, int], ...]]


class Progress(BaseModel):
    """Attributes:
    seed: job.seed; with it the rest of the epoch is cut and shuffled as it was.
    epoch: the present one, from 0; those before are done.
    goes_on: what comes next; `evaluate`: the epoch is trained, and the tables are shrunk.
    done: training rows of the epoch that are done, by the shards' files as the data set names them.
    begun: what remains of slices that are done to some row, which are not in `done`; named alike.
    skipped: rows that are left out, see `divergence`.
    rows: training rows done or left out, over all epochs.
    loss_sum: over the epoch's done rows.
    train_seconds: spent on training so far.
    history: results of the epochs before.
    """

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    seed: int
    epoch: int
    goes_on: Literal["train", "evaluate"]
    done: Ranges
    begun: tuple[Slice, ...] = ()
    skipped: Ranges = {}
    rows: int
    loss_sum: float
    train_seconds: float
    history: tuple[EpochResult, ...]

    def has(self, pieces: Iterable[Slice]) -> bool:
        """All rows of the pieces are done."""
        return all(self._has(piece) for piece in pieces)

    def _has(self, piece: Slice) -> bool:
        found = is_in(piece, self.begun)
        return rows_in(self.done, [piece]) == piece.rows if found is None else found

    def renamed(self, names: Mapping[str, str]) -> Progress:
        """With other names of the shards."""
        begun = tuple(
            piece.model_copy(update={"shard": names[piece.shard]}) for piece in self.begun
        )
        done, skipped = (
            {names[shard]: ranges for shard, ranges in named.items()}
            for named in (self.done, self.skipped)
        )
        return self.model_copy(update={"done": done, "begun": begun, "skipped": skipped})


def read_progress(where: str, document: Mapping[str, object]) -> Progress:
    """The record in a checkpoint's manifest."""
    try:
        return Progress.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(
            f"{where}: its progress can't be read ({'.'.join(map(str, first['loc']))}: "
            f"{first['msg'].lower()}); use another checkpoint, or its weights alone "
            "(checkpoint.resume: never and checkpoint.warm_start)"
        ) from None


def merged(pieces: Iterable[Slice]) -> Ranges:
    """The rows of all pieces, which don't overlap, as few ranges of each shard."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: (piece.shard, piece.start)):
        ranges = found[piece.shard]
        if ranges and sum(ranges[-1]) == piece.start:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + piece.rows)
        else:
            ranges.append((piece.start, piece.rows))
    return {shard: tuple(ranges) for shard, ranges in found.items()}


def rows_in(ranges: Ranges, pieces: Iterable[Slice]) -> int:
    """How many rows of the pieces lie in the ranges."""
    return sum(
        max(0, min(start + rows, piece.start + piece.rows) - max(start, piece.start))
        for piece in pieces
        for start, rows in ranges.get(piece.shard, ())
    )


def split_at(ranges: Ranges, shards: Sequence[Slice]) -> tuple[list[Slice], list[Slice]]:
    """What of the shards lies in the ranges, and the rest; both in order."""
    inside, outside = [], []
    for shard in shards:
        at = 0
        for start, rows in ranges.get(shard.shard, ()):
            outside.append(Slice(shard=shard.shard, start=at, rows=start - at))
            inside.append(Slice(shard=shard.shard, start=start, rows=rows))
            at = start + rows
        outside.append(Slice(shard=shard.shard, start=at, rows=shard.rows - at))
    return inside, [piece for piece in outside if piece.rows]
