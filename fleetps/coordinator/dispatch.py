"""What a worker that asks for work is told to do."""

from __future__ import annotations

from fleetps.coordinator import groups
from fleetps.coordinator.base import Base
from fleetps.coordinator.members import Member
from fleetps.coordinator.messages import Chore, Finish, Lease, Stop, TaskLease, Wait
from fleetps.coordinator.parts import Parts
from fleetps.coordinator.schema import JobRow
from fleetps.coordinator.task_queue import BEHIND_ALL

_SHORTEST_WAIT = 0.1  # seconds
_IDLE_REQUESTS = 500  # a second


class Dispatcher:
    def __init__(self, base: Base, parts: Parts) -> None:
        self._store = base.store
        self._workers = base.workers
        self._members = parts.members
        self._life = parts.life
        self._phases = parts.phases
        self._queue = parts.queue
        self._pace = parts.pace
        self._checkpoints = parts.checkpoints

    def lease(self, member: Member, request: str | None) -> Lease:
        row = self._life.row
        if row.state == "done" or row.phase == "finish":
            return Finish()
        if self._life.over or not self._members.current(member):
            return Stop(reason=row.reason or self._no_member(member))
        if row.phase in ("rendezvous", "restore"):
            return self._wait()
        self._members.set_active(member)
        if row.phase in ("train", "evaluate"):
            return self._task(member, request, row, BEHIND_ALL) or self._wait()
        task = None
        if row.phase == "checkpoint":  # in mode sync others have begun what is still to be done
            before = groups.begun(self._store, row.epoch, self._workers)
            task = self._task(member, request, row, before)
        return task or self._without_tasks(member, row)

    def _no_member(self, member: Member) -> str:
        if member.live:
            return f"generation {self._members.generation} of the job has begun"
        return f"{member.name} has left the job"

    def _without_tasks(self, member: Member, row: JobRow) -> Lease:
        if self._queue.trains(member.instance):
            return self._wait()
        self._pace.leave(member.instance)  # it has to wait, so nobody waits for it
        if row.phase in ("flush", "checkpoint") and member in self._phases.not_flushed(row):
            return self._phases.flush(row)
        if row.phase == "chore" and member is self._phases.chore_worker():
            return Chore(name=self._phases.chore_name(row), action="shrink", epoch=row.epoch)
        if row.phase == "save" and (chore := self._checkpoints.chore(member)) is not None:
            return chore
        return self._wait()

    def _task(
        self, member: Member, request: str | None, row: JobRow, before: int
    ) -> TaskLease | None:
        training = row.phase != "evaluate"
        task, new_rows = self._queue.lease(
            member, request, row.epoch, row.rows_leased, training=training, before=before
        )
        if task is None:
            if not self._queue.trains(member.instance):
                self._pace.leave(member.instance)
            return None
        if new_rows:
            self._store.set_job(rows_leased=row.rows_leased + new_rows)
        return TaskLease(task=task)

    def _wait(self) -> Wait:
        return Wait(seconds=self.poll())

    def poll(self) -> float:
        """Many idle workers ask less often, so that the requests of all together stay bounded."""
        return max(_SHORTEST_WAIT, self._members.count("worker") / _IDLE_REQUESTS)
