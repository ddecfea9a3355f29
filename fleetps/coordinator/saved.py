"""The store's record of checkpoints, and going back to one: what only recovery asks of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fleetps.coordinator.messages import Slice
from fleetps.coordinator.progress import Progress
from fleetps.coordinator.schema import CheckpointRow
from fleetps.coordinator.skipped import leave_out_again
from fleetps.coordinator.store import Store
from fleetps.coordinator.verdicts import SLICES

_COLUMNS = (
    "number, generation, state, directory, name, saver, reason, rows, began, drained, ended, "
    "progress"
)


SAVED = "saved"
WARM = "warm"


class SavedCheckpoints:
    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, row: CheckpointRow) -> None:
        self._store.sql(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *vars(row).values(),
        )

    def change(self, number: int, **columns: Any) -> None:
        names = ", ".join(f"{name} = ?" for name in columns)
        self._store.sql(
            f"UPDATE checkpoints SET {names} WHERE number = ?",  # noqa: S608 - our names
            *columns.values(),
            number,
        )

    def open(self) -> CheckpointRow | None:
        """The one that is being taken."""
        return next(iter(self._rows("state = 'open'")), None)

    def saved(self) -> list[CheckpointRow]:
        """Newest first."""
        return self._rows("state = ?", SAVED)

    def warm(self) -> Path | None:
        """The one with whose weights the job began, if it did."""
        return next((row.path for row in self._rows("state = ?", WARM)), None)

    def failed_since(self, number: int) -> list[CheckpointRow]:
        """Attempts after checkpoint `number` that failed, newest first."""
        return self._rows("state = 'failed' AND number > ?", number)

    def last_number(self) -> int:
        row = self._store.sql("SELECT COALESCE(MAX(number), 0) FROM checkpoints").fetchone()
        return int(row[0])

    def _rows(self, where: str, *values: Any) -> list[CheckpointRow]:
        rows = self._store.sql(
            f"SELECT {_COLUMNS} FROM checkpoints WHERE {where} ORDER BY number DESC",  # noqa: S608
            *values,
        )
        return [CheckpointRow(*row) for row in rows]


def done_slices(store: Store, epoch: int) -> list[Slice]:
    """The training rows of an epoch that are done."""
    rows = store.sql(
        "SELECT slices FROM tasks WHERE epoch = ? AND training AND state = 'done'", epoch
    )
    return [piece for (text,) in rows for piece in SLICES.validate_json(text)]


def rewind(store: Store, progress: Progress, generation: int, now: float) -> int:
    """Put back to the queue what was done after a checkpoint; returns how many training rows.

    Tasks are as they were then, so each is done in the checkpoint or it isn't. The shards of
    `progress` are named as in the tasks.
    """
    kept = set(_kept(store, progress))
    rows = store.sql(
        "SELECT id, training, state, rows FROM tasks WHERE epoch >= ? AND state != 'skipped'",
        progress.epoch,
    ).fetchall()
    again = [(task, state) for task, _, state, _ in rows if task not in kept]
    lost: int = sum(
        count
        for task, training, state, count in rows
        if training and state == "done" and task not in kept
    )
    for task, state in again:
        if state == "done":
            store.sql(
                "UPDATE leases SET outcome = 'rewound', ended = ? "
                "WHERE task = ? AND outcome = 'done'",
                now,
                task,
            )
        store.sql(
            "UPDATE tasks SET state = 'waiting', generation = ?, done_by = NULL, loss_sum = NULL, "
            "evaluation = NULL, rows_before = CASE WHEN part IS NULL THEN NULL ELSE rows_before "
            "END WHERE id = ?",
            generation,
            task,
        )
    store.sql("DELETE FROM epochs WHERE epoch >= ?", progress.epoch)
    return lost


def _kept(store: Store, progress: Progress) -> Iterable[int]:
    rows = store.sql(
        "SELECT id, slices FROM tasks WHERE epoch = ? AND training AND state = 'done'",
        progress.epoch,
    )
    for task, slices in rows.fetchall():
        if progress.has(SLICES.validate_json(slices)):
            yield task


def count_as_done(store: Store, progress: Progress, where: str, now: float) -> None:
    """In a fresh state: mark the tasks of the past as done, or left out, as all sums then say.

    `where`: the checkpoint, which stands for the workers that did them.
    """
    rows = store.sql("SELECT id, epoch, slices, rows FROM tasks WHERE training").fetchall()
    done = [
        (task, epoch, count)
        for task, epoch, slices, count in rows
        if epoch < progress.epoch or progress.has(SLICES.validate_json(slices))
    ]
    present = sum(count for _, epoch, count in done if epoch == progress.epoch)
    for task, epoch, count in done:
        loss = progress.loss_sum * count / present if epoch == progress.epoch else None
        store.sql(
            "INSERT INTO leases (task, instance, rows, repeated, outcome, granted, ended) "
            "VALUES (?, ?, ?, 0, 'done', ?, ?)",
            task,
            where,
            count,
            now,
            now,
        )
        store.sql(
            "UPDATE tasks SET state = 'done', done_by = ?, loss_sum = ? WHERE id = ?",
            where,
            loss,
            task,
        )
    leave_out_again(store, progress, now)
