"""The job is asked to stop: first what was learnt since the last checkpoint is saved, if it can be.

Workers that train stop behind their batch and tell how far they got; then a checkpoint is taken as
at any other time, and with it, or when `cluster.deadlines.grace` is over, the job stops.
"""

from __future__ import annotations

from fleetps.coordinator.base import Base
from fleetps.coordinator.checkpoints import Checkpointing
from fleetps.coordinator.lifecycle import COORDINATOR, Lifecycle
from fleetps.coordinator.members import Members
from fleetps.coordinator.schema import JobRow
from fleetps.coordinator.task_queue import TaskQueue

_AT_WORK = ("train", "flush", "chore", "checkpoint", "save", "evaluate")
_WHY = "the job was asked to stop"


class Ending:
    def __init__(
        self,
        base: Base,
        members: Members,
        life: Lifecycle,
        queue: TaskQueue,
        checkpoints: Checkpointing,
    ) -> None:
        self._job = base.job
        self._events = base.events
        self._members = members
        self._life = life
        self._queue = queue
        self._checkpoints = checkpoints

    def ask(self, reason: str) -> None:
        """Stop soon; asked again it changes nothing."""
        if self._life.over or self._life.ending:
            return
        if not self._pays(self._life.row):
            self._life.stop(reason)
            return
        grace = self._job.cluster.deadlines.grace
        text = f"{reason}; a checkpoint is taken before, within {grace:g} s"
        self._events.add("ending", COORDINATOR, text)
        self._life.begin_to_end(reason)
        self._checkpoints.want(_WHY)

    def _pays(self, row: JobRow) -> bool:
        """There is something to save, and somebody who can."""
        every = self._job.checkpoint.every
        taken = any((every.epochs, every.tasks, every.rows, every.minutes))
        able = taken and row.phase in _AT_WORK and self._members.live("worker")
        begun = row.phase not in ("evaluate", "train")
        learnt = begun or row.tasks_since > 0 or self._queue.reported_rows(training=True) > 0
        return bool(able and learnt and self._checkpoints.offered)

    def check(self) -> None:
        """Stop when there is nothing left to wait for, or no time."""
        if self._life.over or not self._life.ending:
            return
        grace = self._job.cluster.deadlines.grace
        if not self._checkpoints.pending:
            self._life.stop(self._life.ending)
        elif self._life.ends_for() >= grace:
            self._life.stop(
                f"{self._life.ending}; no checkpoint was taken within {grace:g} s "
                "(cluster.deadlines.grace)"
            )
