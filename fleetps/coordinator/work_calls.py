"""The calls by which workers get their work and report on it; `JobService` has the others."""

from __future__ import annotations

from fleet_config.errors import EXIT_USER
from fleetps.coordinator.base import Base
from fleetps.coordinator.changes import Changes
from fleetps.coordinator.dispatch import Dispatcher
from fleetps.coordinator.lifecycle import COORDINATOR, Death
from fleetps.coordinator.members import Member
from fleetps.coordinator.messages import (
    UNREACHABLE,
    Evaluation,
    JobState,
    Lease,
    TaskAnswer,
    TaskLease,
)
from fleetps.coordinator.parts import Parts
from fleetps.coordinator.status import StatusBoard
from fleetps.coordinator.verdicts import Step, Verdict


class WorkCalls:
    """See `protocol.Coordinator`."""

    def __init__(self, base: Base, parts: Parts, changes: Changes) -> None:
        self._events = base.events
        self._changes = changes
        self._members = parts.members
        self._life = parts.life
        self._queue = parts.queue
        self._pace = parts.pace
        self._learners = parts.learners
        self._checkpoints = parts.checkpoints
        self._generations = parts.generations
        self._divergence = parts.divergence
        self._dispatcher = Dispatcher(base, parts)
        self._board = StatusBoard(base, parts)

    def lease(self, instance: str, request: str | None = None) -> Lease:
        with self._changes.change():
            member = self._members.worker(instance)
            answer = self._dispatcher.lease(member, request)
            if isinstance(answer, TaskLease):
                self._board.begins(member, answer.task.id)
            return answer

    def progress(
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        extra: dict[str, float] | None = None,
    ) -> TaskAnswer:
        with self._changes.lock:  # changes nothing that is stored
            member = self._members.worker(instance)
            member.unreachable = int((extra or {}).get(UNREACHABLE, -1))
            verdict, step = self._queue.progress(member, task_id, rows, steps, loss_sum)
            return self._answer(member, task_id, verdict, step, extra)

    def done(
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        evaluation: Evaluation | None = None,
    ) -> TaskAnswer:
        with self._changes.change():
            member = self._members.worker(instance)
            verdict, step = self._queue.done(member, task_id, rows, steps, loss_sum, evaluation)
            if step is not None and step.training:
                self._checkpoints.trained(rows)
                self._learners.task_done(instance)
            elif step is not None:
                self._checkpoints.evaluated()
            return self._answer(member, task_id, verdict, step, None)

    def failed(self, instance: str, task_id: int, reason: str) -> TaskAnswer:
        with self._changes.change():
            member = self._members.worker(instance)
            verdict = self._queue.failed(member, task_id, reason)
            return self._answer(member, task_id, verdict, None, None)

    def diverged(self, instance: str, task_id: int, reason: str) -> JobState:
        with self._changes.change():
            self._divergence.heard(self._members.worker(instance), task_id, reason)
            return self._life.state()

    def _answer(
        self,
        member: Member,
        task_id: int,
        verdict: Verdict,
        step: Step | None,
        extra: dict[str, float] | None,
    ) -> TaskAnswer:
        if verdict.accepted:
            self._board.report(member, task_id, step, extra)
        if verdict.poison and verdict.again:
            self._generations.open(COORDINATOR, Death(verdict.poison))
        elif verdict.poison:
            self._life.fail(COORDINATOR, verdict.poison, exit_code=EXIT_USER)
        state = self._life.state()
        return TaskAnswer(**dict(state), accepted=verdict.accepted, note=verdict.note)

    def part_done(
        self, instance: str, task_id: int, rows: int, steps: int, loss_sum: float
    ) -> TaskAnswer:
        with self._changes.change():
            member = self._members.worker(instance)
            verdict, step = self._queue.part_done(member, task_id, rows, steps, loss_sum)
            if step is not None:
                self._checkpoints.trained(rows)
            return self._answer(member, task_id, verdict, step, None)

    def release(self, instance: str, begun: bool = True) -> JobState:
        with self._changes.change():
            member = self._members.worker(instance)
            self._pace.leave(instance)
            if tasks := self._queue.release(member, begun=begun):
                self._events.add("released", member.name, f"returned {tasks} tasks")
            return self._life.state()
