"""Cutting a split into even tasks of about `task_rows` rows, whatever its files are like."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
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


def cut_tasks(
    shards: Sequence[tuple[str, int]], task_rows: int, threads: int
) -> list[tuple[Slice, ...]]:
    """Cut shards (path, rows), one after the other, into tasks that differ by at most one row.

    A task may span shards. Each has at least `threads` slices (if it has as many rows), so that
    every loading and training thread has work.
    """
    ends = list(accumulate(rows for _, rows in shards))
    total = ends[-1] if ends else 0
    if total == 0:
        return []
    tasks = -(-total // task_rows)
    bounds = [total * index // tasks for index in range(tasks + 1)]
    return [_slices(shards, ends, start, end, threads) for start, end in pairwise(bounds)]


def _slices(
    shards: Sequence[tuple[str, int]], ends: Sequence[int], start: int, end: int, threads: int
) -> tuple[Slice, ...]:
    cuts = {start + (end - start) * index // threads for index in range(threads + 1)}
    cuts |= set(ends[bisect_right(ends, start) : bisect_right(ends, end)])
    points = sorted(cuts)
    found = []
    for low, high in pairwise(points):
        index = bisect_right(ends, low)
        path, rows = shards[index]
        found.append(Slice(shard=path, start=low - (ends[index] - rows), rows=high - low))
    return tuple(found)
