"""What a worker that asks for work is told to do."""

from __future__ import annotations

from fleetps.coordinator.base import Base
from fleetps.coordinator.lifecycle import Lifecycle
from fleetps.coordinator.members import Member, Members
from fleetps.coordinator.messages import Chore, Finish, Flush, Lease, Stop, TaskLease, Wait
from fleetps.coordinator.pace import Pace
from fleetps.coordinator.phases import Phases
from fleetps.coordinator.schema import JobRow
from fleetps.coordinator.task_queue import TaskQueue

_SHORTEST_WAIT = 0.1  # seconds
_IDLE_REQUESTS = 500  # a second


class Dispatcher:
    def __init__(
        self,
        base: Base,
        members: Members,
        life: Lifecycle,
        phases: Phases,
        queue: TaskQueue,
        pace: Pace,
    ) -> None:
        self._store = base.store
        self._members = members
        self._life = life
        self._phases = phases
        self._queue = queue
        self._pace = pace

    def lease(self, member: Member, request: str | None) -> Lease:
        row = self._life.row
        if row.state == "done" or row.phase == "finish":
            return Finish()
        if self._life.over or not member.live:
            return Stop(reason=row.reason or f"{member.name} has left the job")
        if row.phase == "rendezvous":
            return self._wait()
        self._members.set_active(member)
        if row.phase in ("train", "evaluate"):
            return self._task(member, request, row)
        return self._between_epochs(member, row)

    def _between_epochs(self, member: Member, row: JobRow) -> Lease:
        if row.phase == "flush" and member in self._phases.not_flushed(row):
            return Flush(name=self._phases.flush_name(row))
        if row.phase == "chore" and member is self._phases.chore_worker():
            return Chore(name=self._phases.chore_name(row), action="shrink", epoch=row.epoch)
        return self._wait()

    def _task(self, member: Member, request: str | None, row: JobRow) -> Lease:
        training = row.phase == "train"
        task, new_rows = self._queue.lease(
            member, request, row.epoch, row.rows_leased, training=training
        )
        if task is None:
            if not self._queue.trains(member.instance):
                self._pace.leave(member.instance)  # it has to wait, so nobody waits for it
            return self._wait()
        if new_rows:
            self._store.set_job(rows_leased=row.rows_leased + new_rows)
        return TaskLease(task=task)

    def _wait(self) -> Wait:
        return Wait(seconds=self.poll())

    def poll(self) -> float:
        """Many idle workers ask less often, so that the requests of all together stay bounded."""
        return max(_SHORTEST_WAIT, self._members.count("worker") / _IDLE_REQUESTS)
