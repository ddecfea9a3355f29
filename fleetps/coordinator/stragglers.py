"""Workers whose steps take much longer than those of the others."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetps.coordinator.base import Base
from fleetps.coordinator.lifecycle import Lifecycle
from fleetps.coordinator.members import Member, Members
from fleetps.coordinator.notices import Notices
from fleetps.coordinator.task_queue import TaskQueue

_WINDOW = 10.0  # seconds over which steps are averaged
_MEGABYTE = 1 << 20
_SUMS = ("steps", "step_seconds", "idle_seconds")


@dataclass(frozen=True)
class Pace:
    """`step`: seconds that a training thread takes for a batch; `idle`: the share of them in which
    it wasn't on the processor, None if no batch ended; see `training.step_times`."""

    step: float
    idle: float | None


@dataclass
class _Runner:
    """A worker process. Samples: (time, steps, their seconds, idle seconds), all cumulative."""

    samples: deque[tuple[float, float, float, float]] = field(default_factory=deque)
    report: Mapping[str, float] = field(default_factory=dict)  # the last one
    usual: float | None = None  # seconds of a step, when it was last seen training
    slow_since: float | None = None
    told: bool = False

    def add(self, now: float, report: Mapping[str, float]) -> None:
        steps, seconds, idle = (report.get(name, 0.0) for name in _SUMS)
        if self.samples and steps < self.samples[-1][1]:
            self.samples.clear()  # another process
        self.samples.append((now, steps, seconds, idle))
        self.report = report
        while len(self.samples) > 2 and self.samples[1][0] <= now - _WINDOW:
            self.samples.popleft()

    def pace(self, now: float) -> Pace | None:
        """Over the last seconds; None if nothing was reported in them."""
        if len(self.samples) < 2 or self.samples[-1][0] < now - _WINDOW:
            return None
        steps, seconds, idle = (
            last - first
            for first, last in zip(self.samples[0][1:], self.samples[-1][1:], strict=True)
        )
        if steps <= 0:  # it takes at least as long as the one that it is at
            age = self.report.get("step_age", 0.0)
            return Pace(age, None) if age > 0 else None
        return Pace(max(seconds / steps, 0.0), min(idle / seconds, 1.0) if seconds > 0 else None)


class Stragglers:
    """Not in mode sync, where all make each step together."""

    def __init__(
        self, base: Base, members: Members, life: Lifecycle, queue: TaskQueue, notices: Notices
    ) -> None:
        self._job = base.job
        self._limits = base.job.watch.straggler
        self._clock = base.clock
        self._members = members
        self._life = life
        self._queue = queue
        self._notices = notices
        self._runners: dict[str, _Runner] = {}

    def heard(self, member: Member, extra: Mapping[str, float]) -> None:
        """A worker's report of its steps, see `training.step_times`."""
        if "steps" in extra:
            self._runners.setdefault(member.instance, _Runner()).add(self._clock(), extra)

    def pace(self, member: Member) -> Pace | None:
        """Of the last seconds; None if it doesn't train, or has just begun to."""
        runner = self._runners.get(member.instance)
        if runner is None or not self._queue.trains(member.instance):
            return None
        pace = runner.pace(self._clock())
        quiet = self._queue.unheard(member)
        if pace is None and quiet > _WINDOW:
            return Pace(quiet, None)  # it gets so little done that it doesn't even report
        return pace

    def is_slow(self, member: Member) -> bool:
        """It was reported, and that still holds."""
        runner = self._runners.get(member.instance)
        return runner is not None and runner.told

    def look(self) -> None:
        """Compare all; call it about once a second."""
        live = {member.instance: member for member in self._members.live("worker")}
        for instance in self._runners.keys() - live.keys():
            runner = self._runners.pop(instance)
            if runner.told:
                name = self._members.name_of(instance)
                self._notices.add("straggler-over", name, "has left the job")
        row = self._life.row
        if row.phase != "train" or self._job.mode_of(row.epoch).name == "sync":
            return
        paces = [(member, pace) for member in live.values() if (pace := self.pace(member))]
        for member, pace in paces:
            self._runners[member.instance].usual = pace.step
        for member, pace in paces:
            # The others may have nothing left to do just because this one is so slow.
            others = [
                runner.usual
                for instance, runner in self._runners.items()
                if instance != member.instance and runner.usual is not None
            ]
            if others:
                self._judge(member, pace, statistics.median(others))

    def _judge(self, member: Member, pace: Pace, usual: float) -> None:
        runner, now = self._runners[member.instance], self._clock()
        if pace.step <= self._limits.times * usual:
            runner.slow_since = None
            if runner.told:
                runner.told = False
                text = f"its steps take {pace.step:.3g} s again, those of the others {usual:.3g} s"
                self._notices.add("straggler-over", member.name, text)
            return
        if runner.slow_since is None:
            runner.slow_since = now
        slow = now - runner.slow_since
        if not runner.told and slow >= self._limits.seconds:
            runner.told = True
            text = (
                f"its steps take {pace.step:.3g} s, those of the others {usual:.3g} s (median), "
                f"for {slow:.0f} s now; {_state(member, pace, runner.report)}"
            )
            self._notices.add("straggler", member.name, text)


def _state(member: Member, pace: Pace, report: Mapping[str, float]) -> str:
    """What may explain it."""
    found = []
    if pace.idle is not None:
        found.append(f"{pace.idle:.0%} of it waiting (for servers, or for a core)")
    if "load" in report:
        found.append(f"load average {report['load']:.1f} on {report.get('cores', 1):.0f} cores")
    if "memory.used" in member.load:
        found.append(f"memory {member.load['memory.used'] / _MEGABYTE:,.0f} MB")
    return ", ".join(found) or f"on {member.address}"
