"""Mode geo: how many workers learn at the same time, whose changes the servers average."""

from __future__ import annotations

from collections import deque

from fleetps.coordinator.base import Base
from fleetps.coordinator.members import Members

_TASKS = 2  # of a worker's own, in which one as fast certainly ends one


class Learners:
    """Not who is there but who gets on: one that stands still would take its part of every mean."""

    def __init__(self, base: Base, members: Members) -> None:
        self._clock = base.clock
        self._workers = base.workers
        self._members = members
        self._ends: dict[str, deque[float]] = {}

    def task_done(self, instance: str) -> None:
        """A training task of this worker."""
        self._ends.setdefault(instance, deque(maxlen=_TASKS)).append(self._clock())

    def count(self, instance: str) -> int:
        """Those that have ended a task during this worker's last ones, and itself.

        While too little is known: all that are there or still to come.
        """
        live = {member.instance for member in self._members.live("worker")}
        ends = self._ends.get(instance)
        if ends is None or len(ends) < _TASKS:
            return max(self._workers, len(live))
        begun = ends[0]
        return 1 + sum(
            self._ends[other][-1] >= begun
            for other in live & self._ends.keys()
            if other != instance
        )
