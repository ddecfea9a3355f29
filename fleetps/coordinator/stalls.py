"""When nothing goes on: who is waited for, said long before a deadline ends the job."""

from __future__ import annotations

from collections.abc import Iterator

from fleetps.coordinator.base import Base
from fleetps.coordinator.checkpoints import Checkpointing
from fleetps.coordinator.lifecycle import COORDINATOR, Lifecycle
from fleetps.coordinator.members import Member, Members
from fleetps.coordinator.naming import cut_off, names_of
from fleetps.coordinator.notices import Notices
from fleetps.coordinator.pace import Pace
from fleetps.coordinator.phases import Phases
from fleetps.coordinator.task_queue import TaskQueue

# What may take long by itself is told after this share of its deadline.
_SHARE = 0.1
_LATE_HEARTBEATS = 2.5
# A worker at work reports every second, also while it waits for others.
QUIET_SECONDS = 5.0


class Stalls:
    def __init__(
        self,
        base: Base,
        members: Members,
        life: Lifecycle,
        queue: TaskQueue,
        pace: Pace,
        checkpoints: Checkpointing,
        phases: Phases,
        notices: Notices,
    ) -> None:
        self._job = base.job
        self._clock = base.clock
        self._members = members
        self._life = life
        self._queue = queue
        self._pace = pace
        self._checkpoints = checkpoints
        self._phases = phases
        self._notices = notices
        self._told = ""
        self._since: float | None = None
        self._cut: list[tuple[str, str]] = []

    @property
    def sentence(self) -> str:
        """For people: who is waited for, and since when; "": the job goes on."""
        if self._since is None:
            return ""
        return f"no progress for {self._clock() - self._since:.0f} s: {self._told}"

    def look(self) -> None:
        """Call it about once a second."""
        cut = [(worker.name, what) for worker, what in cut_off(self._members)]
        for who, what in cut:
            if (who, what) not in self._cut:
                self._notices.add("cut-off", who, what)
        self._cut = cut
        progress = max(self._queue.last_step, self._life.phase_since)
        waited = self._clock() - progress
        if self._life.over or waited < self._patience():
            if self._since is not None and not self._life.over:
                stood = self._clock() - self._since - waited
                self._notices.add("progress", COORDINATOR, f"goes on after {stood:.0f} s")
            self._told, self._since = "", None
            return
        self._since = progress
        whom = "; ".join(self._whom())
        if whom and whom != self._told:
            self._told = whom
            self._notices.add("no-progress", COORDINATOR, self.sentence)

    def _patience(self) -> float:
        deadlines, phase = self._job.cluster.deadlines, self._life.row.phase
        known = {"save": deadlines.checkpoint, "restore": deadlines.checkpoint}
        return max(self._job.watch.no_progress, _SHARE * known.get(phase, 0.0))

    def _whom(self) -> Iterator[str]:
        """Most telling first: who can't be reached explains who waits for it."""
        silent = list(self._silent())
        yield from silent
        row = self._life.row
        phase = row.phase
        if phase == "rendezvous":
            yield f"waits for {', '.join(self._members.missing()) or 'a checkpoint to be read'}"
        elif phase == "restore":
            yield f"worker 0 loads {row.restore}"
        elif phase in ("flush", "checkpoint") and not self._queue.holders():
            late = names_of(self._phases.not_flushed(row)) or "nobody"
            yield f"{late} did not push what was learnt yet"
        elif phase == "chore":
            yield f"{_name(self._phases.chore_worker())} shrinks the tables"
        elif phase == "save":
            saver = self._checkpoints.saver(self._members.live("worker"))
            yield f"{_name(saver)} saves a checkpoint"
        elif phase == "finish":
            yield f"{names_of(self._members.live('worker'))} did not end yet"
        elif not silent:
            yield self._workers()

    def _silent(self) -> Iterator[str]:
        for member in self._members.all_live():
            age = self._clock() - member.last_seen
            if age > _LATE_HEARTBEATS * self._job.cluster.heartbeat:
                yield f"{member.name} ({member.address}) was not heard of for {age:.0f} s"
            elif (quiet := member.load.get("silent", 0.0)) > 0:
                yield (
                    f"the Paddle process of {member.name} ({member.address}) has not answered its "
                    f"agent for {quiet + age:.0f} s"
                )
        for worker, what in cut_off(self._members):
            yield f"{worker.name} ({worker.address}) {what}"

    def _workers(self) -> str:
        """Of those that could make a step."""
        holders = self._queue.holders()
        workers = self._members.live("worker")
        found = [one for one in workers if one.instance in holders]
        if not found:
            return f"{names_of(workers)} ask for no work" if workers else "no worker is there"
        quiet = [one for one in found if self._queue.unheard(one) >= QUIET_SECONDS]
        if quiet and len(quiet) < len(found):
            return f"{names_of(quiet)} reported nothing for {QUIET_SECONDS:g} s and more"
        leads = [(lead.clock, one) for one in found if (lead := self._pace.lead(one)) is not None]
        if leads:
            least = min(clock for clock, _ in leads)
            found = [one for clock, one in leads if clock == least]
        return f"no step by {names_of(found)}"


def _name(member: Member | None) -> str:
    return member.name if member else "nobody"
