"""No wait without a deadline, and when one passes the sentence names who is missing."""

from __future__ import annotations

import math

from fleetps.coordinator.base import Base
from fleetps.coordinator.lifecycle import COORDINATOR, Death
from fleetps.coordinator.members import Member
from fleetps.coordinator.naming import cut_off, listed, names_of
from fleetps.coordinator.parts import Parts
from fleetps.coordinator.reports import MISSED_HEARTBEATS
from fleetps.coordinator.stalls import QUIET_SECONDS


class Watch:
    def __init__(self, base: Base, parts: Parts) -> None:
        self._workers = base.workers
        self._deadlines = base.job.cluster.deadlines
        self._silence = base.job.cluster.heartbeat * MISSED_HEARTBEATS
        self._clock = base.clock
        self._members = parts.members
        self._life = parts.life
        self._phases = parts.phases
        self._queue = parts.queue
        self._pace = parts.pace
        self._losses = parts.losses
        self._checkpoints = parts.checkpoints
        self._generations = parts.generations
        self._stragglers = parts.stragglers
        self._stalls = parts.stalls
        self._registered_since: float | None = None
        self._deserted_since: float | None = None

    def check(self) -> None:
        """Look at every deadline. Silence comes first: it explains what else is late."""
        self._silent()
        row = self._life.row
        if self._deserted(row.phase):
            return
        looks = {
            "rendezvous": self._rendezvous,
            "restore": self._restore,
            "train": self._tasks,
            "evaluate": self._tasks,
            "flush": self._flush,
            "chore": self._chore,
            "checkpoint": self._flush,
            "save": self._save,
        }
        phase = row.phase
        if phase == "checkpoint" and not self._checkpoints.drained(row):
            phase = "train"  # what is still held is like any other task
        if phase in looks:
            looks[phase]()
        self._stragglers.look()
        self._stalls.look()

    def overdue(self) -> bool:
        """The job is over for so long that who is still there will not leave any more."""
        return self._life.since_end() > self._deadlines.stop + self._silence

    def _silent(self) -> None:
        now = self._clock()
        for member in self._members.all_live():
            silent = now - member.last_seen
            if silent <= self._silence:
                continue
            if member.returns and silent <= self._deadlines.rendezvous:
                continue
            reason = (
                f"not heard of for {silent:.0f} s ({MISSED_HEARTBEATS} heartbeats): "
                f"its agent or host at {member.address} has died or cannot reach the coordinator"
            )
            self._losses.silent(member, reason)

    def _rendezvous(self) -> None:
        if self._headless():
            # It died while its place was taken on, by one that came before it was missed.
            self._generations.open("worker 0", Death("was lost while the others began again"))
            return
        absent = self._members.unregistered()
        if "server" in {name.split()[0] for name in absent}:
            self._registered_since = None
        elif self._registered_since is None:
            self._registered_since = self._clock()
        waited = self._life.in_phase()
        if absent and waited >= self._deadlines.rendezvous:
            self._fail(f"{listed(absent)} did not register", "rendezvous")
        elif self._registered_since is not None:
            late = self._members.not_serving()
            started = max(self._registered_since, self._life.phase_since)
            if late and self._clock() - started >= self._deadlines.server_start:
                places = [f"{server.name} ({server.address})" for server in late]
                self._fail(f"{listed(places)} registered but did not serve", "server_start")

    def _headless(self) -> bool:
        """Enough workers have come to this generation, but nobody is, or will be, worker 0."""
        row, workers = self._life.row, self._members.live("worker")
        come = sum(self._members.current(worker) for worker in workers)
        return row.generation > 0 and come >= row.workers and all(one.rank for one in workers)

    def _tasks(self) -> None:
        if self._losses.grouped and self._life.row.phase != "evaluate":
            if self._queue.overdue() or self._idle():
                self._group_stopped()
            return
        # Asked before leases expire: who holds none has nothing to do and is not to blame.
        holders = self._queue.holders()
        poison = self._queue.expire()
        for instance in holders - self._queue.holders():
            self._pace.leave(instance)
        if poison:
            self._life.fail(COORDINATOR, poison)
            return
        if not self._idle():
            return
        workers = self._members.live("worker")
        late = [worker for worker in workers if worker.instance in holders] or workers
        why = [f"; {worker.name} {what}" for worker, what in cut_off(self._members)]
        self._fail(f"no step by {names_of(late)}", "first_step", "".join(why[:1]))

    def _deserted(self, phase: str) -> bool:
        """Nobody is left to do the work: another worker may come, but not at any time."""
        if phase in ("rendezvous", "finish") or self._members.live("worker"):
            self._deserted_since = None
            return False
        if self._deserted_since is None:
            self._deserted_since = self._clock()
        if self._clock() - self._deserted_since >= self._deadlines.rendezvous:
            self._fail("all workers have left, and no other came", "rendezvous")
        return True

    def _idle(self) -> bool:
        """Nobody has made a step for longer than any step may take."""
        limit = max(self._deadlines.first_step, self._deadlines.step)
        idle = self._clock() - max(self._queue.last_step, self._life.phase_since)
        return idle >= limit

    def _group_stopped(self) -> None:
        """One worker of a group makes no step, so none does: find out which one it was."""
        workers = [
            member for member in self._members.live("worker") if self._losses.in_group(member)
        ]
        absent = sorted(set(range(self._workers)) - {member.rank for member in workers})
        if absent:
            names = [f"worker {rank}" for rank in absent]
            self._fail(f"{listed(names)} did not come for an epoch of mode sync", "first_step")
            return
        for worker, what in cut_off(self._members):
            self._blame(worker, what)
            return
        quietest = max(workers, key=self._queue.unheard)
        quiet = self._queue.unheard(quietest)
        if quiet >= QUIET_SECONDS:
            said = "has reported nothing" if math.isinf(quiet) else f"was silent for {quiet:.0f} s"
            self._blame(quietest, f"{said} and makes no step: it is stopped or hangs")
            return
        epoch = self._life.row.epoch
        slowest = min(workers, key=lambda member: self._queue.rows_of(member, epoch))
        rows = self._queue.rows_of(slowest, epoch)
        self._blame(slowest, f"makes no step and has the fewest rows of the epoch ({rows})")

    def _blame(self, member: Member, what: str) -> None:
        limits = "cluster.deadlines.step and first_step"
        self._generations.open(
            member.name, Death(f"{what}; in mode sync the other workers wait for it ({limits})")
        )

    def _flush(self) -> None:
        if self._life.in_phase() >= self._deadlines.barrier:
            late = self._phases.not_flushed(self._life.row)
            names = names_of(late) or "any worker"
            self._fail(f"{names} did not finish pushing what was learnt", "barrier")

    def _save(self) -> None:
        if self._life.in_phase() >= self._deadlines.checkpoint:
            saver = self._checkpoints.saver(self._members.live("worker"))
            self._fail(f"{saver.name if saver else 'nobody'} saved no checkpoint", "checkpoint")

    def _restore(self) -> None:
        if self._life.in_phase() >= self._deadlines.checkpoint:
            what = f"has not loaded {self._life.row.restore}"
            limit = f"{self._deadlines.checkpoint:g} s (cluster.deadlines.checkpoint)"
            self._generations.open("worker 0", Death(f"{what} within {limit}"))

    def _chore(self) -> None:
        if self._life.in_phase() >= self._deadlines.barrier:
            worker = self._phases.chore_worker()
            who = worker.name if worker else "any worker"
            self._fail(f"the tables were not shrunk by {who}", "barrier")

    def _fail(self, what: str, deadline: str, more: str = "") -> None:
        seconds = getattr(self._deadlines, deadline)
        within = f"within {seconds:g} s (cluster.deadlines.{deadline})"
        self._life.fail(COORDINATOR, f"{what} {within}{more}")
