"""Groups of tasks in mode sync: a part for each worker, all of which make their steps together."""

from __future__ import annotations

from fleetps.coordinator.store import Store


def group_of(store: Store, task_id: int) -> list[tuple[int, int]]:
    """Ids and rows of the tasks that can only be trained together: of a group, or just one."""
    rows = store.sql(
        "SELECT other.id, other.rows FROM tasks AS other, tasks AS one WHERE one.id = ? AND "
        "(other.id = one.id OR (one.part IS NOT NULL AND other.part IS NOT NULL AND "
        "other.training AND other.epoch = one.epoch AND other.rows_before = one.rows_before))",
        task_id,
    )
    return [(int(task), int(count)) for task, count in rows]


def begun(store: Store, epoch: int, workers: int) -> int:
    """The position behind the last group of which a worker has begun its part; 0: no group."""
    last = store.sql(
        "SELECT MAX(position) FROM tasks WHERE epoch = ? AND training AND part IS NOT NULL "
        "AND state NOT IN ('waiting', 'skipped')",
        epoch,
    ).fetchone()[0]
    return 0 if last is None else (int(last) // workers + 1) * workers


def begun_waiting(store: Store, epoch: int, workers: int) -> bool:
    """Parts of groups that others have begun, and so must be done too, were not leased yet."""
    found = store.sql(
        "SELECT 1 FROM tasks WHERE epoch = ? AND training AND part IS NOT NULL "
        "AND state = 'waiting' AND position < ? LIMIT 1",
        epoch,
        begun(store, epoch, workers),
    )
    return found.fetchone() is not None
