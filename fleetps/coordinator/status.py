"""What people see: the status, and the result that is left in the run directory."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fleetps
from fleetps.coordinator.base import Base
from fleetps.coordinator.lifecycle import Lifecycle
from fleetps.coordinator.members import Member, Members
from fleetps.coordinator.phases import Phases
from fleetps.coordinator.reports import (
    Accounting,
    EpochResult,
    Failure,
    ServerStatus,
    Status,
    WorkerStatus,
)
from fleetps.coordinator.schema import JobRow
from fleetps.coordinator.speed import LossCurve, Meter
from fleetps.coordinator.task_queue import Step, TaskQueue

_PACKAGES = ("paddlepaddle", "paddlepaddle-gpu")
RESULT_VERSION = 1


class StatusBoard:
    def __init__(
        self,
        base: Base,
        members: Members,
        life: Lifecycle,
        phases: Phases,
        queue: TaskQueue,
    ) -> None:
        self._job = base.job
        self._best_auc = _best_auc(base.dataset.source)
        self._store = base.store
        self._clock = base.clock
        self._wall = base.wall
        self._members = members
        self._life = life
        self._phases = phases
        self._queue = queue
        self._versions = _versions()
        self._curve = LossCurve()
        self._meters = {name: Meter(rows) for name, rows in base.store.rows_done_by().items()}
        self._together = Meter(sum(meter.rows for meter in self._meters.values()))

    def begins(self, member: Member, task_id: int) -> None:
        meter = self._meter(member)
        for started in (meter, self._together):
            started.begin(self._clock())
        if meter.task is None:
            meter.task = task_id

    def report(
        self, member: Member, task_id: int, step: Step | None, extra: dict[str, float] | None
    ) -> None:
        meter = self._meter(member)
        meter.task = task_id
        meter.extra = extra or meter.extra
        if step is not None:
            now = self._clock()
            for counted in (meter, self._together):
                counted.add(now, step.rows, step.loss_sum, training=step.training)
            if step.training and (loss := self._together.loss(now)) is not None:
                self._curve.add(self._together.rows, loss)

    def _meter(self, member: Member) -> Meter:
        return self._meters.setdefault(member.instance, Meter())

    def status(self) -> Status:
        row = self._life.row
        now = self._clock()
        workers = tuple(self._worker(member, now) for member in self._members.ever("worker"))
        rate = self._together.rate(now)
        total = self._phases.train_rows * self._job.job.epochs
        done = self._train_rows_done()
        history = self.history()
        phase_done, phase_total = self._phase_rows(row)
        return Status(
            name=self._job.job.name,
            job=row.state,
            generation=row.generation,
            phase=row.phase,
            epoch=row.epoch,
            epochs=self._job.job.epochs,
            rows_total=total,
            rows_done=done,
            phase_rows_total=phase_total,
            phase_rows_done=phase_done,
            rows_per_second=rate,
            loss=self._together.loss(now),
            eta=(total - done) / rate if rate and row.phase == "train" else None,
            seconds=(row.finished or self._wall()) - row.started,
            workers=workers,
            servers=tuple(self._server(member, now) for member in self._members.ever("server")),
            missing=self._members.missing() if row.state == "waiting" else (),
            history=history,
            loss_curve=self._curve.points(),
            accounting=self.accounting(),
            failure=Failure.model_validate_json(row.failure) if row.failure else None,
            reason=row.reason,
            exit_code=row.exit_code,
            best_auc=self._best_auc,
            versions=self._versions,
        )

    def _train_rows_done(self) -> int:
        done = self._store.rows_by_state(training=True).get("done", 0)
        return done + self._queue.reported_rows(training=True)

    def _phase_rows(self, row: JobRow) -> tuple[int, int]:
        if row.phase not in ("train", "flush", "evaluate"):
            return 0, 0
        training = row.phase != "evaluate"
        states = self._store.rows_by_state(row.epoch, training)
        reported = self._queue.reported_rows(training=training)
        return states.get("done", 0) + reported, sum(states.values())

    def _worker(self, member: Member, now: float) -> WorkerStatus:
        meter = self._meter(member)
        return WorkerStatus(
            rank=member.rank,
            address=member.address,
            state=member.state,
            rows=meter.rows,
            rows_per_second=meter.rate(now),
            loss=meter.loss(now),
            task=meter.task,
            heartbeat_age=now - member.last_seen,
            extra=meter.extra,
        )

    def _server(self, member: Member, now: float) -> ServerStatus:
        return ServerStatus(
            rank=member.rank,
            address=member.address,
            state=member.state,
            heartbeat_age=now - member.last_seen,
        )

    def history(self) -> tuple[EpochResult, ...]:
        return tuple(EpochResult.model_validate_json(text) for text in self._store.epochs())

    def accounting(self) -> Accounting:
        states = self._store.rows_by_state()
        leased, returned, repeated = self._store.leased_rows()
        return Accounting(
            total=sum(states.values()),
            leased=leased,
            done=states.get("done", 0),
            held=states.get("leased", 0),
            returned=returned,
            repeated=repeated,
            waiting=states.get("waiting", 0),
            quarantined=states.get("quarantined", 0),
        )

    def write_result(self, path: Path) -> None:
        """result.json, by rename, so that nobody ever sees half of it."""
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(self._result(), file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def _result(self) -> dict[str, Any]:
        row = self._life.row
        history = [result.model_dump() for result in self.history()]
        evaluated = [result for result in history if result["evaluated_rows"]]
        rows = self._store.rows_by_state(training=True).get("done", 0)
        return {
            "version": RESULT_VERSION,
            "name": self._job.job.name,
            "state": row.state,
            "final": evaluated[-1] if evaluated else history[-1],
            "best_auc": self._best_auc,
            "history": history,
            "rows": rows,
            "rows_per_second": rows / row.train_seconds if row.train_seconds > 0 else None,
            "seconds": (row.finished or self._wall()) - row.started,
            "train_seconds": row.train_seconds,
            "accounting": self.accounting().model_dump(),
            "versions": self._versions,
            "digest": row.digest,
            "job": self._job.model_dump(mode="json"),
        }


def _best_auc(source: Mapping[str, Any]) -> float | None:
    """Synthetic data knows the AUC of its true probabilities."""
    value = source.get("best_auc")
    return float(value) if isinstance(value, (int, float)) else None


def _versions() -> dict[str, str]:
    found = {"fleetps": fleetps.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
