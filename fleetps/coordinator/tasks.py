"""Cutting a split into even tasks of about `task_rows` rows, whatever its files are like.

In mode sync all workers must make the same number of steps, so there the cut is into *groups* of
tasks, one for each worker, whose row counts differ by at most one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from fleetps.coordinator.messages import Slice

# A train_from_dataset call costs about 0.1 s by itself, so a task should last seconds; and a lost
# task is trained again, so it should not last long.
SMALLEST_AUTO_TASK = 10_000
LARGEST_AUTO_TASK = 1_000_000
TASKS_PER_WORKER = 8


def auto_task_rows(rows: int, workers: int) -> int:
    """About eight tasks for each worker, so that a slow one holds the others up by little."""
    return min(max(rows // (workers * TASKS_PER_WORKER), SMALLEST_AUTO_TASK), LARGEST_AUTO_TASK)


def cut_tasks(pieces: Sequence[Slice], task_rows: int, threads: int) -> list[tuple[Slice, ...]]:
    """Cut pieces of shards, one after the other, into tasks that differ by at most one row.

    A task may span shards. Each has at least `threads` slices (if it has as many rows), so that
    every loading and training thread has work.
    """
    ends = list(accumulate(piece.rows for piece in pieces))
    total = ends[-1] if ends else 0
    if total == 0:
        return []
    tasks = -(-total // task_rows)
    bounds = [total * index // tasks for index in range(tasks + 1)]
    return [_slices(pieces, ends, start, end, threads) for start, end in pairwise(bounds)]


@dataclass(frozen=True)
class Part:
    """One worker's share of a group; `pad` rows of zero weight make it as long as the others."""

    slices: tuple[Slice, ...]
    pad: int

    @property
    def rows(self) -> int:
        return sum(piece.count for piece in self.slices)


def cut_groups(
    pieces: Sequence[Slice], task_rows: int, threads: int, workers: int, batch_size: int
) -> list[tuple[Part, ...]]:
    """Cut pieces of shards, one after the other, into groups of one part for each worker.

    Each part of a group has about `task_rows` rows and is a whole number of batches; only the last
    group, which takes in what is left over, may end with a short batch and with parts of unequal
    length. Needs at least one row for each worker.
    """
    ends = list(accumulate(piece.rows for piece in pieces))
    total = ends[-1] if ends else 0
    size = max(round(task_rows / batch_size), 1) * batch_size * workers
    groups = max(total // size, 1)
    bounds = [*(size * index for index in range(groups)), total]
    return [_parts(pieces, ends, low, high, threads, workers) for low, high in pairwise(bounds)]


def _parts(
    pieces: Sequence[Slice],
    ends: Sequence[int],
    low: int,
    high: int,
    threads: int,
    workers: int,
) -> tuple[Part, ...]:
    even, over = divmod(high - low, workers)
    sizes = [even + (index < over) for index in range(workers)]
    longest = max(sizes)
    bounds = pairwise([low + before for before in accumulate(sizes, initial=0)])
    return tuple(
        Part(_slices(pieces, ends, start, end, threads), longest - size)
        for (start, end), size in zip(bounds, sizes, strict=True)
    )


def _slices(
    pieces: Sequence[Slice], ends: Sequence[int], start: int, end: int, threads: int
) -> tuple[Slice, ...]:
    cuts = {start + (end - start) * index // threads for index in range(threads + 1)}
    cuts |= set(ends[bisect_right(ends, start) : bisect_right(ends, end)])
    points = sorted(cuts)
    found = []
    for low, high in pairwise(points):
        index = bisect_right(ends, low)
        piece = pieces[index]
        start_here = piece.start + low - (ends[index] - piece.rows)
        found.append(Slice(shard=piece.shard, start=start_here, rows=high - low))
    return tuple(found)


def where(slices: Iterable[Slice]) -> str:
    """Files and rows, for people: rows counted from 1, as editors do."""
    ranges: dict[str, tuple[int, int]] = {}
    for piece in slices:
        start, _ = ranges.get(piece.shard, (piece.start, 0))
        ranges[piece.shard] = (start, piece.start + piece.rows)
    return ", ".join(f"{shard} rows {start + 1}-{end}" for shard, (start, end) in ranges.items())
