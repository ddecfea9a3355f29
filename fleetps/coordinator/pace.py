"""Mode bounded: the clocks of the present epoch, and how far ahead anybody ever was."""

from __future__ import annotations

from fleet_config.errors import UserError
from fleet_config.modes import BoundedMode
from fleetps.coordinator.base import Base
from fleetps.coordinator.clocks import Clocks, Lead, Reading
from fleetps.coordinator.lifecycle import Lifecycle
from fleetps.coordinator.members import Member
from fleetps.coordinator.task_queue import TaskQueue


class Pace:
    def __init__(self, base: Base, life: Lifecycle, queue: TaskQueue) -> None:
        self._job = base.job
        self._life = life
        self._queue = queue
        self._epoch = -1
        self._clocks = Clocks(0, 1.0)
        self._furthest: dict[str, int] = {}

    @property
    def furthest(self) -> int | None:
        """The greatest lead of any worker so far; None where none was ever asked for."""
        return max(self._furthest.values(), default=None)

    def read(self, member: Member, epoch: int, steps: int) -> Reading:
        mode = self._mode(epoch)
        if epoch != self._life.row.epoch or not self._queue.trains(member.instance):
            # It lost its task, and what it still does won't count: nobody has to wait for it.
            return Reading(steps + mode.staleness, steps)
        if epoch != self._epoch:
            self._epoch, self._clocks = epoch, Clocks(mode.staleness, mode.quorum)
        reading = self._clocks.read(member.instance, steps)
        if reading.slowest < steps:
            self._queue.excuse(member)  # it may be waiting for the slowest, as it should
        lead = self.lead(member)
        if lead is not None:
            furthest = self._furthest.get(member.instance, 0)
            self._furthest[member.instance] = max(furthest, lead.ahead)
        return reading

    def _mode(self, epoch: int) -> BoundedMode:
        mode = self._job.mode_of(epoch) if epoch < self._job.job.epochs else None
        if not isinstance(mode, BoundedMode):
            raise UserError(f"epoch {epoch} of this job is not of mode bounded")
        return mode

    def begin_again(self) -> None:
        """All workers are new: whoever asks first begins the race."""
        self._epoch = -1
        self._clocks = Clocks(0, 1.0)

    def leave(self, instance: str) -> None:
        self._clocks.leave(instance)

    def lead(self, member: Member) -> Lead | None:
        """None while the worker is not waited for."""
        return self._clocks.lead(member.instance)
