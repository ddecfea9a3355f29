"""The task of a worker that leaves in the middle of it becomes two: what is done, and the rest."""

from __future__ import annotations

from fleetps.coordinator.schema import LeaseRow, TaskRow
from fleetps.coordinator.splits import split
from fleetps.coordinator.store import Store
from fleetps.coordinator.verdicts import SLICES, slices_text


def keep_part(store: Store, lease: LeaseRow, task: TaskRow, rows: int, now: float) -> None:
    """The held task ends behind its first `rows`; the others were leased with it in vain."""
    done, rest = split(SLICES.validate_json(task.slices), task.shuffle_seed, rows)
    store.sql(
        "UPDATE tasks SET slices = ?, rows = ? WHERE id = ?", slices_text(done), rows, task.id
    )
    store.sql("UPDATE leases SET rows = ? WHERE id = ?", rows, lease.id)
    left = task.rows - rows
    added = store.sql(
        "INSERT INTO tasks (generation, epoch, training, split, position, slices, rows, pad, "
        "rows_before, shuffle_seed) SELECT generation, epoch, training, split, position, ?, ?, 0, "
        "rows_before + ?, shuffle_seed FROM tasks WHERE id = ?",
        slices_text(rest),
        left,
        rows,
        task.id,
    )
    store.sql(
        "INSERT INTO leases (task, instance, rows, repeated, outcome, granted, ended) "
        "SELECT ?, instance, ?, repeated, 'unbegun', granted, ? FROM leases WHERE id = ?",
        added.lastrowid,
        left,
        now,
        lease.id,
    )
