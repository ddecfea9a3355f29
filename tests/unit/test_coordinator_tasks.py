"""Cutting splits into tasks: whatever the files are like, every row once, and even pieces."""

from hypothesis import given
from hypothesis import strategies as st

from fleetps.coordinator.messages import Slice
from fleetps.coordinator.tasks import auto_task_rows, cut_tasks

sizes = st.lists(st.integers(0, 100), max_size=8)


@given(sizes, st.integers(1, 150), st.integers(1, 9))
def test_every_row_is_in_exactly_one_slice_and_tasks_are_even(rows, task_rows, threads):
    shards = [(f"/data/{index}", count) for index, count in enumerate(rows)]
    pieces = [Slice(shard=path, start=0, rows=count) for path, count in shards]
    tasks = cut_tasks(pieces, task_rows, threads)

    covered = [
        (piece.shard, row)
        for task in tasks
        for piece in task
        for row in range(piece.start, piece.start + piece.rows)
    ]
    assert covered == [(shard, row) for shard, count in shards for row in range(count)]
    lengths = [sum(piece.rows for piece in task) for task in tasks]
    assert not lengths or max(lengths) - min(lengths) <= 1
    assert all(0 < length <= task_rows for length in lengths)
    assert all(
        len(task) >= min(threads, length) for task, length in zip(tasks, lengths, strict=True)
    )
    assert all(piece.rows > 0 for task in tasks for piece in task)


def test_a_task_spans_small_shards_and_large_shards_are_divided():
    shards = [Slice(shard="/a", start=0, rows=10), Slice(shard="/b", start=0, rows=90)]
    first, second = cut_tasks(shards, 50, 2)
    assert first == (
        Slice(shard="/a", start=0, rows=10),
        Slice(shard="/b", start=0, rows=15),
        Slice(shard="/b", start=15, rows=25),
    )
    assert second == (
        Slice(shard="/b", start=40, rows=25),
        Slice(shard="/b", start=65, rows=25),
    )


def test_auto_gives_each_worker_about_eight_tasks_of_seconds():
    assert auto_task_rows(1_600_000, 2) == 100_000
    assert auto_task_rows(50_000, 2) == 10_000  # a call costs 0.1 s by itself
    assert auto_task_rows(4_000_000_000, 8) == 1_000_000  # a lost task is trained again
