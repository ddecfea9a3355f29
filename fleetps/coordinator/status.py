"""What people see: the status."""

from __future__ import annotations

from fleetps.coordinator.base import Base
from fleetps.coordinator.members import Member
from fleetps.coordinator.parts import Parts
from fleetps.coordinator.reports import Failure, Memory, ServerStatus, Status, WorkerStatus
from fleetps.coordinator.schema import JobRow
from fleetps.coordinator.speed import Curve, Meter
from fleetps.coordinator.verdicts import Step

# In what a member's agent reports of its process: before a table's name, and bytes.
_ROWS = "rows."
_MEMORY, _MEMORY_LIMIT = "memory.used", "memory.limit"


class StatusBoard:
    def __init__(self, base: Base, parts: Parts) -> None:
        self._job = base.job
        self._store = base.store
        self._clock = base.clock
        self._wall = base.wall
        self._members = parts.members
        self._life = parts.life
        self._phases = parts.phases
        self._queue = parts.queue
        self._pace = parts.pace
        self._losses = parts.losses
        self._result = parts.result
        self._checkpoints = parts.checkpoints
        self._generations = parts.generations
        self._stragglers = parts.stragglers
        self._stalls = parts.stalls
        self._notices = parts.notices
        self._wanted = base.wanted
        self._loss_curve = Curve()
        self._speed_curve = Curve()
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
        if extra:
            meter.extra = extra
            self._stragglers.heard(member, extra)
        if step is not None:
            now = self._clock()
            for counted in (meter, self._together):
                counted.add(now, step.rows, step.loss_sum, training=step.training)
            if step.training and (loss := self._together.loss(now)) is not None:
                self._loss_curve.add(self._together.rows, loss)
            self._speed_curve.add(int(self._seconds()), self._together.rate(now))

    def _meter(self, member: Member) -> Meter:
        return self._meters.setdefault(member.instance, Meter())

    def status(self) -> Status:
        row = self._life.row
        now = self._clock()
        workers = tuple(self._worker(member, now) for member in self._members.ever("worker"))
        rate = self._together.rate(now)
        total = self._phases.train_rows * self._job.job.epochs
        done = self._train_rows_done()
        phase_done, phase_total = self._phase_rows(row)
        return Status(
            name=self._job.job.name,
            job=row.state,
            wanted=self._wanted,
            heartbeat=self._job.cluster.heartbeat,
            generation=row.generation,
            phase=row.phase,
            mode=self._job.mode_of(row.epoch).name,
            epoch=row.epoch,
            epochs=self._job.job.epochs,
            rows_total=total,
            rows_done=done,
            phase_rows_total=phase_total,
            phase_rows_done=phase_done,
            rows_per_second=rate,
            loss=self._together.loss(now),
            eta=(total - done) / rate if rate and row.phase == "train" else None,
            seconds=self._seconds(),
            workers=workers,
            servers=tuple(self._server(member, now) for member in self._members.ever("server")),
            max_lead=self._pace.furthest,
            workers_lost=self._losses.count,
            losses=tuple(self._losses.sentences),
            notices=self._notices.sentences,
            notices_so_far=self._notices.count,
            stalled=self._stalls.sentence,
            missing=self._members.missing() if row.phase == "rendezvous" else (),
            checkpoint=self._checkpoints.status(),
            recoveries=tuple(self._generations.told),
            history=self._result.history(),
            loss_curve=self._loss_curve.points(),
            speed_curve=self._speed_curve.points(),
            accounting=self._result.accounting(),
            events=self._store.event_counts(),
            failure=Failure.model_validate_json(row.failure) if row.failure else None,
            reason=row.reason,
            exit_code=row.exit_code,
            best_auc=self._result.best_auc,
            versions=self._result.versions,
        )

    def _seconds(self) -> float:
        row = self._life.row
        return (row.finished or self._wall()) - row.started

    def _train_rows_done(self) -> int:
        done = self._store.rows_by_state(training=True).get("done", 0)
        return done + self._queue.reported_rows(training=True)

    def _phase_rows(self, row: JobRow) -> tuple[int, int]:
        if row.phase in ("rendezvous", "restore", "finish"):
            return 0, 0
        training = row.phase != "evaluate"
        states = self._store.rows_by_state(row.epoch, training)
        reported = self._queue.reported_rows(training=training)
        return states.get("done", 0) + reported, sum(states.values())

    def _worker(self, member: Member, now: float) -> WorkerStatus:
        meter = self._meter(member)
        lead = self._pace.lead(member)
        pace = self._stragglers.pace(member)
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
            memory=_memory(member),
            clock=lead.clock if lead else None,
            lead=lead.ahead if lead else None,
            waited=meter.extra.get("waited", 0.0),
            step_seconds=pace.step if pace else None,
            idle=pace.idle if pace else None,
            straggler=self._stragglers.is_slow(member),
        )

    def _server(self, member: Member, now: float) -> ServerStatus:
        return ServerStatus(
            rank=member.rank,
            address=member.address,
            state=member.state,
            heartbeat_age=now - member.last_seen,
            rows={
                name.removeprefix(_ROWS): int(value)
                for name, value in member.load.items()
                if name.startswith(_ROWS)
            },
            memory=_memory(member),
        )


def _memory(member: Member) -> Memory:
    used, limit = member.load.get(_MEMORY), member.load.get(_MEMORY_LIMIT)
    return Memory(
        used=None if used is None else int(used), limit=None if limit is None else int(limit)
    )
