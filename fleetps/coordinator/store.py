"""The coordinator's memory: one SQLite file in WAL mode; a killed coordinator loses nothing.

Only facts that must outlive the process are here; how far a running task is, when a member was last
heard of and when a lease ends are not (after a restart everybody gets the full time again).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet_config.errors import UserError
from fleetps.coordinator.schema import (
    SCHEMA,
    SCHEMA_VERSION,
    SELECT_TASK,
    Arrival,
    JobRow,
    LeaseRow,
    MemberRow,
    NewTask,
    TaskRow,
)

sqlite3.register_converter("BOOLEAN", lambda value: value == b"1")


class Store:
    """Typed access to the tables. Not thread-safe: the service holds one lock around it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(
                path,
                isolation_level=None,
                check_same_thread=False,
                detect_types=sqlite3.PARSE_DECLTYPES,
            )
            self._prepare()
        except sqlite3.OperationalError as error:
            raise UserError(
                f"{path}: the coordinator's state cannot be opened here ({error})"
            ) from error
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"{path}: the coordinator's state is damaged ({error}); "
                "move it away, and the job goes on from its last checkpoint"
            ) from error

    def _prepare(self) -> None:
        self._db.execute("PRAGMA busy_timeout = 5000")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.executescript(
                f"BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
        elif version != SCHEMA_VERSION:
            raise UserError(
                f"{self.path}: the coordinator's state has version {version} and this FleetPS "
                f"reads version {SCHEMA_VERSION}; move it away"
            )
        elif (check := self._db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(check)
        # In WAL mode NORMAL survives the death of the process; only a power cut may lose the last
        # moments, and then their tasks are trained again.
        self._db.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:  # a full disk has ended it already
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def sql(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return self._db.execute(sql, values)

    def _row(self, sql: str, *values: Any) -> Any:
        return self.sql(sql, *values).fetchone()

    def create_job(self, digest: str, workers: int, now: float) -> None:
        self._db.execute(
            "INSERT INTO job VALUES (1, :digest, 'waiting', '', NULL, NULL, 0, 'rendezvous', :now, "
            "0, 0, :now, :now, 0, NULL, '', 'train', :workers, 0, 0, '', 0, 0, :now, '')",
            {"digest": digest, "workers": workers, "now": now},
        )

    def job(self) -> JobRow | None:
        row = self._row("SELECT * FROM job")
        return JobRow(*row[1:]) if row else None

    def set_job(self, **columns: Any) -> None:
        names = ", ".join(f"{name} = ?" for name in columns)
        self.sql(f"UPDATE job SET {names}", *columns.values())  # noqa: S608 - our names

    # -- members and barriers --

    def members(self) -> list[MemberRow]:
        rows = self.sql("SELECT * FROM members ORDER BY rank")
        return [MemberRow(*row) for row in rows]

    def save_member(self, row: MemberRow) -> None:
        self.sql("INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?, ?)", *vars(row).values())

    def arrive(self, generation: int, name: str, arrival: Arrival) -> None:
        values = (generation, name, *vars(arrival).values())
        self.sql("INSERT OR REPLACE INTO arrivals VALUES (?, ?, ?, ?, ?)", *values)

    def arrivals(self, generation: int, name: str) -> list[Arrival]:
        rows = self.sql(
            "SELECT instance, rank, note FROM arrivals WHERE generation = ? AND name = ? "
            "ORDER BY rank",
            generation,
            name,
        )
        return [Arrival(*row) for row in rows]

    # -- tasks and leases --

    def add_tasks(self, tasks: Iterable[NewTask]) -> None:
        self._db.executemany(
            "INSERT INTO tasks (generation, epoch, training, split, position, slices, rows, part, "
            "pad, rows_before, shuffle_seed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (tuple(vars(task).values()) for task in tasks),
        )

    def task(self, task_id: int) -> TaskRow | None:
        row = self._row(f"{SELECT_TASK} WHERE id = ?", task_id)
        return TaskRow(*row) if row else None

    def next_task(self, epoch: int, training: bool, rank: int, before: int) -> TaskRow | None:
        """The first that waits for this rank at a position less than `before`."""
        row = self._row(
            f"{SELECT_TASK} WHERE epoch = ? AND training = ? AND state = 'waiting' "
            "AND position < ? AND (part IS NULL OR part = ?) ORDER BY position LIMIT 1",
            epoch,
            training,
            before,
            rank,
        )
        return TaskRow(*row) if row else None

    def unfinished(self, epoch: int, *, training: bool) -> bool:
        """Asked all the time, so it must not read all tasks of the phase: the index knows."""
        return self._any(epoch, training, "'waiting', 'leased', 'quarantined'")

    def unleased(self, epoch: int) -> bool:
        """Some training tasks wait for a worker."""
        return self._any(epoch, True, "'waiting'")

    def _any(self, epoch: int, training: bool, states: str) -> bool:
        row = self._row(
            "SELECT EXISTS (SELECT 1 FROM tasks WHERE epoch = ? AND training = ? "  # noqa: S608 - ours
            f"AND state IN ({states}))",
            epoch,
            training,
        )
        return bool(row[0])

    def grant(
        self, task: TaskRow, instance: str, request: str | None, rows_before: int, now: float
    ) -> int:
        """Lease a waiting task; the id of the lease."""
        self.sql(
            "UPDATE tasks SET state = 'leased', rows_before = ? WHERE id = ?", rows_before, task.id
        )
        values = (task.id, instance, request, task.rows, task.id, now)
        cursor = self.sql(
            "INSERT INTO leases (task, instance, request, rows, repeated, granted) "
            "SELECT ?, ?, ?, ?, "
            "EXISTS (SELECT 1 FROM leases WHERE task = ? AND outcome != 'unbegun'), ?",
            *values,
        )
        return int(cursor.lastrowid or 0)

    def held(self) -> list[LeaseRow]:
        rows = self.sql("SELECT id, task, instance FROM leases WHERE outcome = 'held'")
        return [LeaseRow(*row) for row in rows]

    def granted_for(self, instance: str, request: str) -> int | None:
        """The task this very request got, if it is still held."""
        row = self._row(
            "SELECT task FROM leases WHERE instance = ? AND outcome = 'held' AND request = ?",
            instance,
            request,
        )
        return int(row[0]) if row else None

    def end_lease(
        self, lease: LeaseRow, outcome: str, task_state: str, failed: bool, now: float
    ) -> None:
        self.sql("UPDATE leases SET outcome = ?, ended = ? WHERE id = ?", outcome, now, lease.id)
        state = "UPDATE tasks SET state = ?, failures = failures + ? WHERE id = ?"
        self.sql(state, task_state, failed, lease.task)

    def record_done(
        self, task_id: int, instance: str, loss_sum: float, evaluation: str | None
    ) -> None:
        done = "UPDATE tasks SET done_by = ?, loss_sum = ?, evaluation = ? WHERE id = ?"
        self.sql(done, instance, loss_sum, evaluation, task_id)

    def rows_by_state(
        self, epoch: int | None = None, training: bool | None = None
    ) -> dict[str, int]:
        """Rows of the tasks in each state, of one phase or of all that were made."""
        rows = self._db.execute(
            "SELECT state, SUM(rows) FROM tasks WHERE (:epoch IS NULL OR epoch = :epoch) "
            "AND (:training IS NULL OR training = :training) GROUP BY state",
            {"epoch": epoch, "training": training},
        )
        return dict(rows.fetchall())

    def leased_rows(self) -> tuple[int, int, int]:
        """Rows of all leases, of those that came back, and of those not a task's first."""
        row = self._row(
            "SELECT COALESCE(SUM(rows), 0), "
            "COALESCE(SUM(CASE WHEN outcome IN ('done', 'held') THEN 0 ELSE rows END), 0), "
            "COALESCE(SUM(rows * repeated), 0) FROM leases"
        )
        return int(row[0]), int(row[1]), int(row[2])

    def rows_done_by(self, epoch: int | None = None) -> dict[str, int]:
        """Training rows by the instance that trained them, of one epoch or of all."""
        rows = self._db.execute(
            "SELECT done_by, SUM(rows) FROM tasks WHERE training AND state = 'done' "
            "AND (:epoch IS NULL OR epoch = :epoch) GROUP BY done_by",
            {"epoch": epoch},
        )
        return dict(rows.fetchall())

    def train_sums(self, epoch: int) -> tuple[int, float]:
        """Rows and summed loss of an epoch's finished training tasks."""
        row = self._row(
            "SELECT COALESCE(SUM(rows), 0), COALESCE(SUM(loss_sum), 0) FROM tasks "
            "WHERE epoch = ? AND training AND state = 'done'",
            epoch,
        )
        return int(row[0]), float(row[1])

    def evaluations(self, epoch: int) -> Iterator[str]:
        rows = self.sql(
            "SELECT evaluation FROM tasks WHERE epoch = ? AND NOT training AND state = 'done'",
            epoch,
        )
        return (row[0] for row in rows)

    def drop_evaluations(self, epoch: int) -> None:
        """Merged histograms are of no more use, and large."""
        self.sql("UPDATE tasks SET evaluation = NULL WHERE epoch = ? AND NOT training", epoch)

    # -- epochs and events --

    def save_epoch(self, epoch: int, result: str) -> None:
        self.sql("INSERT OR REPLACE INTO epochs VALUES (?, ?)", epoch, result)

    def epochs(self) -> list[str]:
        return [row[0] for row in self.sql("SELECT result FROM epochs ORDER BY epoch")]

    def add_event(self, time: str, kind: str, who: str, text: str) -> int:
        add = "INSERT INTO events (time, kind, who, text) VALUES (?, ?, ?, ?)"
        cursor = self.sql(add, time, kind, who, text)
        return int(cursor.lastrowid or 0)

    def events(self, after: int, limit: int) -> list[tuple[int, str, str, str, str]]:
        select = "SELECT id, time, kind, who, text FROM events WHERE id > ? ORDER BY id LIMIT ?"
        return self.sql(select, after, limit).fetchall()

    def event_counts(self) -> dict[str, int]:
        """How many there are of each kind."""
        return dict(self.sql("SELECT kind, COUNT(*) FROM events GROUP BY kind").fetchall())

    def events_of(self, kind: str) -> list[tuple[str, str]]:
        """Who, and what."""
        select = "SELECT who, text FROM events WHERE kind = ? ORDER BY id"
        return self.sql(select, kind).fetchall()
