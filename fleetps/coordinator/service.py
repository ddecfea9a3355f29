"""The coordinator itself: every method is one locked transaction over the parts.

`local` uses it in-process; app.py puts HTTP around it. protocol.py says what can be asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet_config.errors import TryAgain, UserError
from fleet_config.job import Job
from fleetps.coordinator.base import Base
from fleetps.coordinator.changes import Changes
from fleetps.coordinator.dispatch import Dispatcher
from fleetps.coordinator.events import EventLog
from fleetps.coordinator.lifecycle import COORDINATOR, Lifecycle
from fleetps.coordinator.losses import Losses
from fleetps.coordinator.members import Member, Members, another_job
from fleetps.coordinator.messages import (
    Arrived,
    Clock,
    Evaluation,
    Events,
    JobState,
    Lease,
    Registered,
    Rendezvous,
    TaskAnswer,
    TaskLease,
)
from fleetps.coordinator.pace import Pace
from fleetps.coordinator.phases import Phases
from fleetps.coordinator.reports import MemberRole, MemberState, Status
from fleetps.coordinator.result import Result
from fleetps.coordinator.runfiles import EVENTS_FILE, RESULT_FILE, STATE_FILE, open_store
from fleetps.coordinator.schema import Arrival
from fleetps.coordinator.status import StatusBoard
from fleetps.coordinator.task_queue import Step, TaskQueue, Verdict
from fleetps.coordinator.watch import Watch
from fleetps.data.dataset import Dataset


class JobService:
    """See `protocol.Coordinator`.

    `local`: one worker in this very process and no servers; nobody sends heartbeats or calls tick.
    `new`: set the state of an earlier, unfinished run aside and do not go on with it.
    """

    def __init__(
        self,
        job: Job,
        dataset: Dataset,
        *,
        run_dir: Path | None = None,
        new: bool = False,
        local: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._job = job
        if job.evaluate.every_epochs:
            dataset.split(job.evaluate.split)  # better refused now than after an epoch
        run_dir = run_dir or job.run_dir
        # A local run keeps its parameters in the process, so there is nothing to go on with.
        store = self._store = open_store(run_dir / STATE_FILE, job.digest(), new=new or local)
        events = self._events = EventLog(store, run_dir / EVENTS_FILE, wall)
        servers, workers = (0, 1) if local else (job.cluster.servers, job.cluster.workers)
        self._workers = workers
        base = Base(job, dataset, store, events, clock, wall, servers, workers)
        members = self._members = Members(base)
        life = self._life = Lifecycle(base)
        phases = self._phases = Phases(base, members, life)
        queue = self._queue = TaskQueue(base, members.name_of)
        pace = self._pace = Pace(base, life, queue)
        result = Result(base, life)
        self._dispatcher = Dispatcher(base, members, life, phases, queue, pace)
        losses = self._losses = Losses(base, members, life, queue, pace)
        self._board = StatusBoard(base, members, life, phases, queue, pace, losses, result)
        self._watch = Watch(base, members, life, phases, queue, pace, losses)
        self._changes = Changes(base, members, life, phases, queue, result, run_dir / RESULT_FILE)
        with self._changes.change():
            self._begin(wall())

    @property
    def lost(self) -> TryAgain | None:
        """Why the state can't be kept any longer, if so."""
        return self._changes.lost

    def _begin(self, now: float) -> None:
        if self._store.job() is None:
            self._store.create_job(self._job.digest(), now)
            self._events.add("created", COORDINATOR, f"job {self._job.job.name}")
        else:
            self._events.add("restarted", COORDINATOR, "the coordinator goes on where it was")

    def close(self) -> None:
        with self._changes.lock:
            self._store.close()

    # -- members --

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
            member, new = self._members.join(role, instance, address, rank)
            if new:
                self._events.add("registered", member.name, f"registered from {address}")
            return Registered(rank=member.rank, generation=self._life.row.generation)

    def rendezvous(self, instance: str) -> Rendezvous:
        with self._changes.lock:
            self._members.seen(self._members.get(instance))
            row = self._life.row
            waiting = row.phase == "rendezvous"
            return Rendezvous(
                complete=not waiting,
                servers=self._members.endpoints(),
                workers=max(self._workers, self._members.count("worker")),
                missing=self._members.missing() if waiting else (),
                waited=self._life.in_phase() if waiting else 0.0,
                generation=row.generation,
            )

    def heartbeat(
        self, instance: str, state: MemberState, load: dict[str, float] | None = None
    ) -> JobState:
        with self._changes.lock:
            member = self._members.get(instance)
            self._members.seen(member)
            member.load = load or member.load
            if member.live and member.state != state:
                with self._changes.change():
                    self._new_state(member, state)
            return self._life.state()

    def _new_state(self, member: Member, state: MemberState) -> None:
        if state == "exited":
            self._losses.left(member)
        else:
            self._members.set_state(member, state)
            self._events.add(state, member.name, f"is {state} at {member.address}")

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
            self._losses.failed(member, reason, log_tail, exit_code, again=again)
            return self._life.state()

    def stop(self, reason: str) -> JobState:
        with self._changes.change():
            self._life.stop(reason)
            return self._life.state()

    def checkpoint(self, reason: str) -> JobState:
        raise TryAgain(f"checkpoints can't be taken yet ({reason})")

    # -- tasks --

    def lease(self, instance: str, request: str | None = None) -> Lease:
        with self._changes.change():
            member = self._members.worker(instance)
            answer = self._dispatcher.lease(member, request)
            if isinstance(answer, TaskLease):
                self._board.begins(member, answer.task.id)
            return answer

    def progress(
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        extra: dict[str, float] | None = None,
    ) -> TaskAnswer:
        with self._changes.lock:  # changes nothing that is stored
            member = self._members.worker(instance)
            verdict, step = self._queue.progress(member, task_id, rows, steps, loss_sum)
            return self._answer(member, task_id, verdict, step, extra)

    def done(
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        evaluation: Evaluation | None = None,
    ) -> TaskAnswer:
        with self._changes.change():
            member = self._members.worker(instance)
            verdict, step = self._queue.done(member, task_id, rows, steps, loss_sum, evaluation)
            return self._answer(member, task_id, verdict, step, None)

    def failed(self, instance: str, task_id: int, reason: str) -> TaskAnswer:
        with self._changes.change():
            member = self._members.worker(instance)
            verdict = self._queue.failed(member, task_id, reason)
            return self._answer(member, task_id, verdict, None, None)

    def _answer(
        self,
        member: Member,
        task_id: int,
        verdict: Verdict,
        step: Step | None,
        extra: dict[str, float] | None,
    ) -> TaskAnswer:
        if verdict.accepted:
            self._board.report(member, task_id, step, extra)
        if verdict.poison:
            self._life.fail(COORDINATOR, verdict.poison, exit_code=verdict.exit_code)
        state = self._life.state()
        return TaskAnswer(**dict(state), accepted=verdict.accepted, note=verdict.note)

    def release(self, instance: str) -> JobState:
        with self._changes.change():
            member = self._members.worker(instance)
            self._pace.leave(instance)
            if tasks := self._queue.release(member):
                self._events.add("released", member.name, f"returned {tasks} tasks")
            return self._life.state()

    # -- barriers --

    def arrive(self, instance: str, name: str, note: str = "") -> JobState:
        with self._changes.change():
            member = self._members.worker(instance)
            generation = self._life.row.generation
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
        """Look at all deadlines; call it about twice a second."""
        with self._changes.change():
            self._watch.check()

    def ended(self) -> bool:
        """The job is over, and every member has left or has had the time to."""
        with self._changes.lock:
            if not self._life.over:
                return False
            return not self._members.all_live() or self._watch.overdue()
