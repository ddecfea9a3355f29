"""The queue of tasks: leased, renewed, done or returned; every row is always in one place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fleetps.coordinator.base import Base
from fleetps.coordinator.groups import group_of
from fleetps.coordinator.leaving import keep_part
from fleetps.coordinator.members import Member
from fleetps.coordinator.messages import Evaluation, Task
from fleetps.coordinator.metrics import check_loss
from fleetps.coordinator.schema import LeaseRow, TaskRow
from fleetps.coordinator.skipped import leave_out
from fleetps.coordinator.verdicts import SLICES, Step, Verdict, fault_of, where_is

MOST_HELD = 2  # one to train, one to load
MOST_FAILURES = 3
BEHIND_ALL = 2**62


@dataclass
class _Live:
    """What is known of a held task only in memory."""

    lease: LeaseRow
    training: bool
    expires: float
    rows: int = 0
    steps: int = 0
    loss_sum: float = 0.0


class TaskQueue:
    def __init__(
        self,
        base: Base,
        name_of: Callable[[str], str],
    ) -> None:
        self._store = base.store
        self._events = base.events
        self._clock = base.clock
        self._wall = base.wall
        self._patience = base.job.cluster.deadlines
        self._joined = base.workers > 1  # parts of a group: nobody can repeat one alone
        self._name_of = name_of
        self._heard: dict[str, float] = {}
        self._live: dict[int, _Live] = {}
        self._held: dict[str, list[_Live]] = {}
        self.last_step = base.clock()
        self.reload()

    def reload(self) -> None:
        """Believe the store again, at the start or when a transaction failed; full time for all."""
        self._live.clear()
        self._held.clear()
        for lease in self._store.held():
            self._hold(lease, training=self._task(lease.task).training)

    def _hold(self, lease: LeaseRow, *, training: bool) -> None:
        live = _Live(lease, training, self._clock() + self._patience.first_step)
        self._live[lease.task] = live
        self._held.setdefault(lease.instance, []).append(live)

    def lease(
        self,
        member: Member,
        request: str | None,
        epoch: int,
        rows_leased: int,
        *,
        training: bool,
        before: int = BEHIND_ALL,
    ) -> tuple[Task | None, int]:
        """A task, or None when there is none for this member now; and the rows newly leased.

        `before`: only tasks at positions less than this.
        """
        self._heard[member.instance] = self._clock()
        if request and (again := self._store.granted_for(member.instance, request)) is not None:
            return self._message(self._task(again)), 0
        if len(self._held.get(member.instance, ())) >= MOST_HELD:
            return None, 0
        row = self._store.next_task(epoch, training, member.rank, before)
        if row is None:
            return None, 0
        first = row.rows_before is None  # parts of a group know it from the beginning
        rows_before = rows_leased if row.rows_before is None else row.rows_before
        lease_id = self._store.grant(row, member.instance, request, rows_before, self._wall())
        self._hold(LeaseRow(lease_id, row.id, member.instance), training=training)
        self.last_step = self._clock()
        return self._message(self._task(row.id)), row.rows if first and training else 0

    def _task(self, task_id: int) -> TaskRow:
        row = self._store.task(task_id)
        if row is None:
            raise LookupError(f"task {task_id} was never made")
        return row

    @staticmethod
    def _message(row: TaskRow) -> Task:
        return Task(
            id=row.id,
            generation=row.generation,
            epoch=row.epoch,
            split=row.split,
            training=row.training,
            slices=SLICES.validate_json(row.slices),
            rows=row.rows,
            pad=row.pad,
            rows_before=row.rows_before or 0,
            shuffle_seed=row.shuffle_seed,
        )

    def _refusal(self, member: Member, task_id: int) -> Verdict | None:
        """None if the member holds the task."""
        held = self._live.get(task_id)
        if held is not None and held.lease.instance == member.instance:
            return None
        row = self._store.task(task_id)
        if row is None:
            return Verdict(False, f"there is no task {task_id}")
        if row.state == "done" and row.done_by == member.instance:
            return Verdict(True, "reported before")
        if held is not None:
            return Verdict(False, f"task {task_id} is held by {self._name_of(held.lease.instance)}")
        return Verdict(False, f"the lease of task {task_id} had ended (the task is {row.state})")

    def progress(
        self, member: Member, task_id: int, rows: int, steps: int, loss_sum: float
    ) -> tuple[Verdict, Step | None]:
        check_loss(task_id, loss_sum)
        self._heard[member.instance] = self._clock()
        if refusal := self._refusal(member, task_id):
            return refusal, None
        live = self._live[task_id]
        step = Step(rows - live.rows, loss_sum - live.loss_sum, live.training)
        if (rows, steps) <= (live.rows, live.steps):
            return Verdict(True), None
        live.rows, live.steps, live.loss_sum = rows, steps, loss_sum
        self._renew(member, live)
        return Verdict(True), step

    def _renew(self, member: Member, advanced: _Live) -> None:
        now = self._clock()
        self.last_step = now
        for live in self._held[member.instance]:
            # The other one waits for its turn: its own first step is still to come.
            live.expires = max(live.expires, now + self._patience.first_step)
        advanced.expires = now + self._patience.step

    def excuse(self, member: Member) -> None:
        """It need not make a step now: its leases run from here as after one."""
        for live in self._held[member.instance]:
            live.expires = max(live.expires, self._clock() + self._patience.step)

    def done(
        self,
        member: Member,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        evaluation: Evaluation | None,
    ) -> tuple[Verdict, Step | None]:
        check_loss(task_id, loss_sum)
        if refusal := self._refusal(member, task_id):
            return refusal, None
        row = self._task(task_id)
        if fault := fault_of(row, rows, evaluation):
            return self._task_failed(member, row, fault, begun=True, accepted=False), None
        _, step = self.progress(member, task_id, rows, steps, loss_sum)
        self._renew(member, self._live[task_id])
        self._end(task_id, "done", "done")
        text = evaluation.model_dump_json() if evaluation else None
        self._store.record_done(task_id, member.instance, loss_sum, text)
        return Verdict(True), step

    def part_done(
        self, member: Member, task_id: int, rows: int, steps: int, loss_sum: float
    ) -> tuple[Verdict, Step | None]:
        """The holder has done the first rows of a task, and leaves."""
        if refusal := self._refusal(member, task_id):
            return refusal, None
        row = self._task(task_id)
        if not row.training or row.part is not None or not 0 < rows <= row.rows:
            return Verdict(False, f"task {task_id} does not end behind {rows} rows"), None
        if rows < row.rows:
            keep_part(self._store, self._live[task_id].lease, row, rows, self._wall())
        return self.done(member, task_id, rows, steps, loss_sum, None)

    def failed(self, member: Member, task_id: int, reason: str) -> Verdict:
        """The holder could not do the task."""
        if refusal := self._refusal(member, task_id):
            return refusal
        begun = self._live[task_id].steps > 0
        return self._task_failed(member, self._task(task_id), reason, begun=begun, accepted=True)

    def _task_failed(
        self, member: Member, row: TaskRow, reason: str, *, begun: bool, accepted: bool
    ) -> Verdict:
        note = "" if accepted else reason
        poison = self._blame(row.id, "failed", "task-failed", member.name, reason)
        if poison:
            return Verdict(accepted, note, poison)  # so many attempts: it is the data
        if begun and row.part is not None and self._joined:
            poison = (
                f"{where_is(row)} could not be handled by {member.name}: {reason}; in mode sync it "
                "can't be repeated, because the other workers have gone on"
            )
            return Verdict(accepted, note, poison, again=True)
        return Verdict(accepted, note)

    def _blame(self, task_id: int, outcome: str, kind: str, who: str, reason: str) -> str:
        """Return a task with one more failure; the sentence for people if that was one too many."""
        row = self._task(task_id)
        failures = row.failures + 1
        given_up = failures >= MOST_FAILURES
        self._end(task_id, outcome, "quarantined" if given_up else "waiting", failed=True)
        self._events.add(kind, who, f"task {task_id} ({where_is(row)}): {reason}")
        if not given_up:
            return ""
        return f"{where_is(row)} could not be handled in {failures} attempts; the last: {reason}"

    def _end(self, task_id: int, outcome: str, state: str, *, failed: bool = False) -> None:
        live = self._live.pop(task_id)
        self._held[live.lease.instance].remove(live)
        self._store.end_lease(live.lease, outcome, state, failed, self._wall())

    def release(self, member: Member, *, begun: bool = True) -> int:
        """Return what the member holds without blame; the number of tasks."""
        tasks = [live.lease.task for live in self._held.get(member.instance, ())]
        for task_id in tasks:
            self._end(task_id, "released" if begun else "unbegun", "waiting")
        return len(tasks)

    def take_back_all(self) -> None:
        """Nobody holds anything any longer."""
        for task_id in list(self._live):
            self._end(task_id, "lost", "waiting")

    def holds(self, member: Member, task_id: int) -> bool:
        """It may go on with this task."""
        return any(live.lease.task == task_id for live in self._held.get(member.instance, ()))

    def skip(self, task_id: int) -> int:
        """Leave a task out, in mode sync the whole group; the number of rows."""
        tasks = group_of(self._store, task_id)
        for task, _ in tasks:
            if task in self._live:
                self._end(task, "skipped", "skipped")
            leave_out(self._store, task, self._wall())
        return sum(rows for _, rows in tasks)

    def overdue(self) -> bool:
        """A lease's holder made no step for too long."""
        now = self._clock()
        return any(live.expires <= now for live in self._live.values())

    def unheard(self, member: Member) -> float:
        """Seconds since this worker last said anything about its work."""
        return self._clock() - self._heard.get(member.instance, -math.inf)

    def rows_of(self, member: Member, epoch: int) -> int:
        """Training rows of an epoch that this worker has reported so far."""
        held = sum(live.rows for live in self._held.get(member.instance, ()) if live.training)
        return held + self._store.rows_done_by(epoch).get(member.instance, 0)

    def expire(self) -> str:
        """Take back leases whose holders made no step; the sentence if a task is given up by it."""
        now = self._clock()
        for live in [live for live in self._live.values() if live.expires <= now]:
            limit = self._patience.step if live.steps else self._patience.first_step
            what = "step" if live.steps else "first step"
            reason = f"no {what} in {limit:g} s (cluster.deadlines.{what.replace(' ', '_')})"
            who = self._name_of(live.lease.instance)
            if poison := self._blame(live.lease.task, "expired", "lease-expired", who, reason):
                return poison
        return ""

    def trains(self, instance: str) -> bool:
        """It holds a training task."""
        return any(live.training for live in self._held.get(instance, ()))

    def holders(self) -> set[str]:
        """The instances that hold tasks."""
        return {live.lease.instance for live in self._live.values()}

    def reported_rows(self, *, training: bool) -> int:
        """Rows reported for tasks that are still held."""
        return sum(live.rows for live in self._live.values() if live.training == training)
