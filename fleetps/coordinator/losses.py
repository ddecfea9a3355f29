"""Members that die or leave: what they held goes back, and the job goes on while it can."""

from __future__ import annotations

from fleet_config.errors import EXIT_USER
from fleetps.coordinator.base import Base
from fleetps.coordinator.lifecycle import Lifecycle
from fleetps.coordinator.members import Member, Members
from fleetps.coordinator.pace import Pace
from fleetps.coordinator.task_queue import TaskQueue

_MOST_KEPT = 20
_LOST = "worker-lost"
_NEEDED = "in mode sync the other workers can't go on without it"


class Losses:
    def __init__(
        self, base: Base, members: Members, life: Lifecycle, queue: TaskQueue, pace: Pace
    ) -> None:
        self._job = base.job
        self._workers = base.workers
        self._events = base.events
        self._members = members
        self._life = life
        self._queue = queue
        self._pace = pace
        # For displays: how many were lost while the job went on, and what the last ones died of.
        told = [f"{who}: {text}" for who, text in base.store.events_of(_LOST)]
        self.count = len(told)
        self.sentences = told[-_MOST_KEPT:]

    def left(self, member: Member) -> None:
        """It said so itself, or its process ended as it should."""
        tasks = self._let_go(member)
        self._members.set_gone(member, "exited")
        self._events.add("left", member.name, f"left with {tasks} tasks" if tasks else "left")
        if member.role == "server":
            self._life.fail(member.name, "ended before the job was done")
        elif self.in_group(member):
            self._life.fail(member.name, f"left before the job was done; {_NEEDED}")

    def silent(self, member: Member, reason: str) -> None:
        """Nothing was heard of it for too long."""
        if member.role == "worker":
            self._worker_lost(member, reason, None, None, again=False)
            return
        self._members.set_gone(member, "exited")
        if self._life.over:
            self._events.add("lost", member.name, reason)
        else:
            self._life.fail(member.name, reason)

    def failed(
        self,
        member: Member,
        reason: str,
        log_tail: list[str] | None,
        child_exit_code: int | None,
        *,
        again: bool,
    ) -> None:
        """Its process has ended as it should not; `again`: it is about to be started again."""
        if member.role == "server" or child_exit_code == EXIT_USER:
            self._life.fail_for_member(member.name, reason, log_tail, child_exit_code)
        else:
            self._worker_lost(member, reason, log_tail, child_exit_code, again=again)

    def in_group(self, member: Member) -> bool:
        """The other workers can't make a step without it."""
        return self.grouped and member.rank < self._workers

    @property
    def grouped(self) -> bool:
        """Workers are joined in the present epoch: mode sync, more than one worker."""
        row = self._life.row
        if row.phase in ("rendezvous", "finish") or self._workers == 1:
            return False
        return self._job.mode_of(row.epoch).name == "sync"

    def _let_go(self, member: Member) -> int:
        """Take back what it held; nobody waits for it any longer. The number of its tasks."""
        self._pace.leave(member.instance)
        return self._queue.release(member)

    def _worker_lost(
        self,
        member: Member,
        reason: str,
        log_tail: list[str] | None,
        child_exit_code: int | None,
        *,
        again: bool,
    ) -> None:
        self._let_go(member)
        # Not for one that is needed no more, or whose place another one has taken meanwhile.
        again = again and self._life.row.phase != "finish" and not self._members.replaced(member)
        self._members.set_gone(member, "registered" if again else "exited")
        member.returns = again
        if self._life.over:
            self._events.add("lost", member.name, reason)
            return
        fatal = self._fatal(member)
        if fatal:
            reason = f"{reason}; {fatal}"
            self._life.fail(member.name, reason, log_tail=log_tail, child_exit_code=child_exit_code)
            return
        text = f"{reason}; " + ("it is started again" if again else "the job goes on without it")
        self._events.add(_LOST, member.name, text)
        self.count += 1
        self.sentences = [*self.sentences, f"{member.name}: {text}"][-_MOST_KEPT:]

    def _fatal(self, member: Member) -> str:
        """Why the job can't go on without it, if so."""
        if self.in_group(member):
            return _NEEDED
        # Before the work begins a replacement may still come; after it nobody is needed.
        if self._life.row.phase in ("rendezvous", "finish") or self._members.live("worker"):
            return ""
        return "no other worker is left"
