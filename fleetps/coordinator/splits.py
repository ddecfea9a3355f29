"""A task of which a worker has done a part: the rows in the order in which they are trained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from fleetps.coordinator.messages import Slice

# The modes in which a worker's rows are its own and are learnt one batch after the other.
SPLITTING = ("async", "bounded")

_Base = tuple[str, int, int]


def seed_of(piece: Slice, index: int, shuffle_seed: int | None) -> int | None:
    """By which the rows of a task's slice are shuffled; `index`: its place in the task."""
    if piece.seed is not None or shuffle_seed is None:
        return piece.seed
    return shuffle_seed + index


def split(
    pieces: Sequence[Slice], shuffle_seed: int | None, rows: int
) -> tuple[list[Slice], list[Slice]]:
    """The first `rows` of a task's rows, and the others."""
    done, rest = [], []
    for index, piece in enumerate(pieces):
        mine = piece.model_copy(update={"seed": seed_of(piece, index, shuffle_seed)})
        taken = min(rows, piece.count)
        rows -= taken
        if taken == piece.count:
            done.append(mine)
        elif taken:
            done.append(mine.model_copy(update={"stop": piece.skip + taken}))
            rest.append(mine.model_copy(update={"skip": piece.skip + taken}))
        else:
            rest.append(mine)
    return done, rest


def whole_and_open(done: Iterable[Slice]) -> tuple[list[Slice], list[Slice]]:
    """What is done, as whole slices, and what remains of those that are done to some row.

    What is done behind a row that isn't counts as not done.
    """
    parts: dict[_Base, list[Slice]] = defaultdict(list)
    for piece in done:
        parts[_base(piece)].append(piece)
    whole, rest = [], []
    for (shard, start, rows), pieces in parts.items():
        at = 0
        for piece in sorted(pieces, key=lambda piece: piece.skip):
            if piece.skip == at:
                at += piece.count
        if at == rows:
            whole.append(Slice(shard=shard, start=start, rows=rows))
        elif at:
            rest.append(pieces[0].model_copy(update={"skip": at, "stop": None}))
    return whole, rest


def done_of(rest: Slice) -> Slice:
    """What is done of a slice of which `rest` remains."""
    return rest.model_copy(update={"skip": 0, "stop": rest.skip})


def is_in(piece: Slice, rest: Sequence[Slice]) -> bool | None:
    """Whether a slice is done, of which one of `rest` remains; None: none does."""
    for one in rest:
        if _base(one) == _base(piece):
            return piece.skip + piece.count <= one.skip
    return None


def _base(piece: Slice) -> _Base:
    return piece.shard, piece.start, piece.rows
