"""The coordinator itself: every method is one locked transaction over the parts.

`local` uses it in-process; app.py puts HTTP around it. protocol.py says what can be asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fleet_config.errors import TryAgain, UserError
from fleet_config.job import Job
from fleetps.coordinator.base import Base
from fleetps.coordinator.changes import Changes
from fleetps.coordinator.choice import choose
from fleetps.coordinator.events import EventLog
from fleetps.coordinator.lifecycle import COORDINATOR, Death
from fleetps.coordinator.messages import (
    Arrived,
    Clock,
    Events,
    JobState,
    Registered,
    Rendezvous,
    Size,
)
from fleetps.coordinator.naming import another_job
from fleetps.coordinator.parts import make_parts
from fleetps.coordinator.reports import MemberRole, MemberState, Status
from fleetps.coordinator.runfiles import EVENTS_FILE, RESULT_FILE, open_store
from fleetps.coordinator.schema import Arrival
from fleetps.coordinator.watch import Watch
from fleetps.coordinator.work_calls import WorkCalls
from fleetps.data.dataset import Dataset

_CHOOSING = ("the coordinator (it is reading checkpoints)",)


class JobService(WorkCalls):
    """See `protocol.Coordinator`.

    `local`: one worker in this very process and no servers; nobody sends heartbeats or calls tick.
    `new`: set the state of an earlier, unfinished run aside and do not go on with it.
    `again`: all other processes of the job have ended too, so it goes on from a checkpoint.
    `stays`: a job that is done stays done, and is served for ever.
    `restarted`: it died while the others lived, so however the job has ended, it stays so.
    """

    def __init__(  # noqa: PLR0913 - all but two are named, and most are seldom given
        self,
        job: Job,
        dataset: Dataset,
        *,
        new: bool = False,
        again: bool = False,
        stays: bool = False,
        restarted: bool = False,
        local: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._job = job
        if job.evaluate.every_epochs:
            dataset.split(job.evaluate.split)  # better refused now than after an epoch
        run_dir = job.run_dir
        # A local run keeps its parameters in the process, so there is nothing to go on with.
        store = self._store = open_store(
            run_dir, job, new=new or local, again=again, stays=stays, restarted=restarted
        )
        events = EventLog(store, run_dir / EVENTS_FILE, wall)
        servers, workers = (0, 1) if local else (job.cluster.servers, job.cluster.workers)
        self._workers = workers
        self._stays = stays
        base = Base(job, dataset, store, events, clock, wall, servers, workers, run_dir)
        parts = make_parts(base)
        super().__init__(base, parts, Changes(base, parts, run_dir / RESULT_FILE))
        self._ending = parts.ending
        self._losses = parts.losses
        self._watch = Watch(base, parts)
        with self._changes.change():
            if restarted and store.job() is not None and self._life.over:
                state = self._life.row.state
                self._events.add("restarted", COORDINATOR, f"the job is {state}, and stays so")
            else:
                self._generations.begin(local=local, again=again)

    @property
    def lost(self) -> TryAgain | None:
        """Why the state can't be kept any longer, if so."""
        return self._changes.lost

    def close(self) -> None:
        with self._changes.lock:
            self._checkpoints.close()
            self._store.close()

    # -- members --

    def size(self) -> Size:
        cluster = self._job.cluster
        return Size(servers=cluster.servers, workers=cluster.workers)

    def register(
        self,
        role: MemberRole,
        instance: str,
        address: str,
        rank: int | None = None,
        digest: str = "",
        agreement: dict[str, Any] | None = None,
    ) -> Registered:
        with self._changes.change():
            if digest != self._job.digest():
                raise UserError(another_job(role, address, self._job.agreement(), agreement))
            followed = self._members.followed(role, instance, address, rank)
            if followed is not None:
                self._losses.followed(followed, instance, address)
        with self._changes.change():  # another one, as it may be refused
            member, new = self._members.join(role, instance, address, rank)
            if new:
                self._events.add("registered", member.name, f"registered from {address}")
            row = self._life.row
            return Registered(rank=member.rank, generation=row.generation, restore=row.restore)

    def rendezvous(self, instance: str) -> Rendezvous:
        with self._changes.lock:
            self._members.seen(self._members.get(instance))
            row = self._life.row
            waiting = row.phase == "rendezvous"
            missing = self._members.missing() or _CHOOSING
            return Rendezvous(
                complete=not waiting,
                servers=self._members.endpoints(),
                workers=self._workers if waiting else self._members.count("worker"),
                learners=self._workers if waiting else self._learners.count(instance),
                missing=missing if waiting else (),
                waited=self._life.in_phase() if waiting else 0.0,
                generation=row.generation,
                restore=row.restore,
            )

    def heartbeat(
        self,
        instance: str,
        state: MemberState,
        load: dict[str, float] | None = None,
        generation: int | None = None,
    ) -> JobState:
        with self._changes.lock:
            member = self._members.get(instance)
            self._members.seen(member)
            member.load = {**member.load, **(load or {})}
            if self._losses.news(member, state, generation):
                with self._changes.change():
                    self._losses.heard(member, state)
            return self._life.state()

    def fail(
        self,
        instance: str,
        reason: str,
        log_tail: list[str] | None = None,
        exit_code: int | None = None,
        again: bool = False,
    ) -> JobState:
        with self._changes.change():
            member = self._members.get(instance)
            self._members.seen(member)
            self._losses.failed(member, Death(reason, log_tail or (), exit_code), again=again)
            return self._life.state()

    def stop(self, reason: str) -> JobState:
        with self._changes.change():
            self._ending.ask(reason)
            return self._life.state()

    def checkpoint(self, reason: str) -> JobState:
        with self._changes.change():
            self._checkpoints.ask(reason)
            return self._life.state()

    # -- barriers --

    def arrive(self, instance: str, name: str, note: str = "") -> JobState:
        with self._changes.change():
            member = self._members.worker(instance)
            if self._members.current(member):
                generation = self._members.generation
                self._store.arrive(generation, name, Arrival(instance, member.rank, note))
            return self._life.state()

    def arrived(self, name: str) -> Arrived:
        with self._changes.lock:
            arrivals = self._store.arrivals(self._life.row.generation, name)
            return Arrived(
                ranks=tuple(sorted({arrival.rank for arrival in arrivals})),
                notes={arrival.rank: arrival.note for arrival in arrivals if arrival.note},
            )

    def clock(self, instance: str, epoch: int, steps: int) -> Clock:
        with self._changes.lock:  # changes nothing that is stored
            reading = self._pace.read(self._members.worker(instance), epoch, steps)
            poll = self._dispatcher.poll()
            return Clock(**dict(self._life.state()), **vars(reading), poll=poll)

    # -- people --

    def status(self) -> Status:
        with self._changes.lock:
            return self._board.status()

    def events(self, after: int = 0) -> Events:
        with self._changes.lock:
            return self._events.after(after)

    # -- the process around it --

    def tick(self) -> None:
        """Look at all deadlines; call it about twice a second, always in the same thread."""
        self._choose()
        with self._changes.change():
            self._watch.check()
            self._checkpoints.keep_up()

    def _choose(self) -> None:
        with self._changes.lock:
            generation, rows = self._life.row.generation, self._generations.candidates()
        if rows is not None:
            choice = choose(rows)  # it reads large files: others must be able to call meanwhile
            with self._changes.change():
                self._generations.begin_with(generation, choice)

    def ended(self) -> bool:
        """The job is over, and every member has left or has had the time to."""
        with self._changes.lock:
            if not self._life.over or self._checkpoints.keeps_up:
                return False
            if self._stays and self._life.row.state == "done":
                return False
            return not self._members.all_live() or self._watch.overdue()
