"""Training tasks that are left out, because the training diverged over them (watch.on_nan)."""

from __future__ import annotations

from fleetps.coordinator.messages import Slice
from fleetps.coordinator.progress import Progress, rows_in
from fleetps.coordinator.store import Store
from fleetps.coordinator.verdicts import SLICES


def leave_out(store: Store, task_id: int, now: float) -> None:
    """Nobody trains this task any more; if somebody has, that doesn't count."""
    store.sql(
        "UPDATE leases SET outcome = 'skipped', ended = ? WHERE task = ? AND outcome = 'done'",
        now,
        task_id,
    )
    store.sql(
        "UPDATE tasks SET state = 'skipped', done_by = NULL, loss_sum = NULL WHERE id = ?", task_id
    )


def skipped_slices(store: Store, epoch: int) -> list[Slice]:
    """The rows of an epoch that were left out."""
    rows = store.sql("SELECT slices FROM tasks WHERE epoch = ? AND state = 'skipped'", epoch)
    return [piece for (text,) in rows for piece in SLICES.validate_json(text)]


def leave_out_again(store: Store, progress: Progress, now: float) -> None:
    """In a fresh state: what a checkpoint says was left out in the present epoch."""
    rows = store.sql(
        "SELECT id, slices, rows FROM tasks WHERE epoch = ? AND training", progress.epoch
    ).fetchall()
    for task, slices, count in rows:
        if count and rows_in(progress.skipped, SLICES.validate_json(slices)) == count:
            leave_out(store, task, now)
