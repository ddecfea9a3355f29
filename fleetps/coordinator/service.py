"""The coordinator itself: every method is one locked transaction over the parts.

`local` uses it in-process; app.py puts HTTP around it. messages.py says what can be asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet_config.errors import EXIT_USER, FleetError, UserError
from fleet_config.job import Job
from fleetps.coordinator.base import Base
from fleetps.coordinator.events import EventLog
from fleetps.coordinator.lifecycle import COORDINATOR, Lifecycle
from fleetps.coordinator.members import Member, Members
from fleetps.coordinator.messages import (
    Arrived,
    Evaluation,
    Events,
    Finish,
    Flush,
    JobState,
    Lease,
    Registered,
    Rendezvous,
    Stop,
    TaskAnswer,
    TaskLease,
    Wait,
)
from fleetps.coordinator.phases import Phases
from fleetps.coordinator.reports import MemberRole, MemberState, Status
from fleetps.coordinator.runfiles import EVENTS_FILE, RESULT_FILE, STATE_FILE, open_store
from fleetps.coordinator.status import StatusBoard
from fleetps.coordinator.task_queue import Step, TaskQueue, Verdict
from fleetps.coordinator.watch import Watch
from fleetps.data.dataset import Dataset

_log = logging.getLogger(__name__)
_MOST_NAMED = 5


class JobService:
    """See `messages.Coordinator`.

    `local`: one worker in this very process and no servers; nobody sends heartbeats or calls tick.
    `new`: set the state of an earlier, unfinished run aside and do not go on with it.
    """

    def __init__(  # noqa: PLR0913
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
        run_dir = run_dir or job.run_dir
        self._lock = threading.RLock()
        self._result_path = run_dir / RESULT_FILE
        store = self._store = open_store(run_dir / STATE_FILE, job.digest(), new=new)
        events = self._events = EventLog(store, run_dir / EVENTS_FILE, wall)
        base = Base(job, dataset, store, events, clock, wall)
        servers, workers = (0, 1) if local else (job.cluster.servers, job.cluster.workers)
        self._workers = workers
        members = self._members = Members(base, servers, workers)
        life = self._life = Lifecycle(base)
        phases = self._phases = Phases(base, members, life)
        queue = self._queue = TaskQueue(base, members.name_of)
        self._board = StatusBoard(base, members, life, phases, queue)
        self._watch = Watch(base, members, life, phases, queue)
        with self._change():
            self._begin(wall())

    def _begin(self, now: float) -> None:
        if self._store.job() is None:
            self._store.create_job(self._job.digest(), now)
            self._events.add("created", COORDINATOR, f"job {self._job.job.name}")
        else:
            self._events.add("restarted", COORDINATOR, "the coordinator goes on where it was")

    def close(self) -> None:
        with self._lock:
            self._store.close()

    @contextmanager
    def _change(self) -> Iterator[None]:
        """One transaction; at its end the job has gone on as far as it can."""
        with self._lock:
            ended = self._store.job() is not None and self._life.over
            try:
                with self._store.transaction():
                    yield
                    self._phases.advance()
            except FleetError:
                raise  # refused before anything was changed
            except BaseException:
                self._members.reload()
                self._queue.reload()
                raise
            self._events.write_out()
            if not ended and self._life.row.state == "done":
                self._board.write_result(self._result_path)

    # -- members --

    def register(  # noqa: PLR0913, PLR0917
        self,
        role: MemberRole,
        instance: str,
        address: str,
        rank: int | None = None,
        digest: str = "",
        agreement: dict[str, Any] | None = None,
    ) -> Registered:
        with self._change():
            if digest != self._job.digest():
                raise UserError(_difference(role, address, self._job.agreement(), agreement))
            member, new = self._members.join(role, instance, address, rank)
            if new:
                self._events.add("registered", member.name, f"from {address}")
            return Registered(rank=member.rank, generation=self._life.row.generation)

    def rendezvous(self, instance: str) -> Rendezvous:
        with self._lock:
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

    def heartbeat(self, instance: str, state: MemberState) -> JobState:
        with self._lock:
            member = self._members.get(instance)
            self._members.seen(member)
            if member.state != state:
                with self._change():
                    self._new_state(member, state)
            return self._life.state()

    def _new_state(self, member: Member, state: MemberState) -> None:
        self._members.set_state(member, state)
        if state != "exited":
            self._events.add(state, member.name, f"is {state} at {member.address}")
            return
        tasks = self._queue.release(member)
        self._events.add("left", member.name, f"left, {tasks} tasks returned")
        if member.role == "server":
            self._life.fail(member.name, "ended before the job was done")

    def fail(
        self,
        instance: str,
        reason: str,
        log_tail: list[str] | None = None,
        exit_code: int | None = None,
    ) -> JobState:
        with self._change():
            member = self._members.get(instance)
            self._life.fail_for_member(member.name, reason, log_tail, exit_code)
            return self._life.state()

    def stop(self, reason: str) -> JobState:
        with self._change():
            self._life.stop(reason)
            return self._life.state()

    # -- tasks --

    def lease(self, instance: str, request: str | None = None) -> Lease:
        with self._change():
            member = self._members.worker(instance)
            row = self._life.row
            if row.state == "done" or row.phase == "finish":
                return Finish()
            if self._life.over or not member.live:
                return Stop(reason=row.reason or f"{member.name} has left the job")
            if row.phase == "rendezvous":
                return Wait(seconds=0.3)
            self._members.set_active(member)
            if row.phase == "flush":
                late = self._phases.not_flushed(row)
                return (
                    Flush(name=self._phases.flush_name(row))
                    if member in late
                    else Wait(seconds=0.1)
                )
            return self._lease_task(member, request)

    def _lease_task(self, member: Member, request: str | None) -> Lease:
        row = self._life.row
        task, new_rows = self._queue.lease(
            member, request, row.epoch, row.rows_leased, training=row.phase == "train"
        )
        if task is None:
            return Wait(seconds=0.2)
        self._store.set_job(rows_leased=row.rows_leased + new_rows)
        self._board.begins(member, task.id)
        return TaskLease(task=task)

    def progress(  # noqa: PLR0913, PLR0917
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        extra: dict[str, float] | None = None,
    ) -> TaskAnswer:
        with self._lock:  # changes nothing that is stored
            member = self._members.worker(instance)
            verdict, step = self._queue.progress(member, task_id, rows, steps, loss_sum)
            return self._answer(member, task_id, verdict, step, extra)

    def done(  # noqa: PLR0913, PLR0917
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        evaluation: Evaluation | None = None,
    ) -> TaskAnswer:
        with self._change():
            member = self._members.worker(instance)
            verdict, step = self._queue.done(member, task_id, rows, steps, loss_sum, evaluation)
            return self._answer(member, task_id, verdict, step, None)

    def failed(self, instance: str, task_id: int, reason: str) -> TaskAnswer:
        with self._change():
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
            # Three attempts with the same rows: it is the data.
            self._life.fail(COORDINATOR, verdict.poison, exit_code=EXIT_USER)
        state = self._life.state()
        return TaskAnswer(**dict(state), accepted=verdict.accepted, note=verdict.note)

    def release(self, instance: str) -> JobState:
        with self._change():
            member = self._members.worker(instance)
            if tasks := self._queue.release(member):
                self._events.add("released", member.name, f"returned {tasks} tasks")
            return self._life.state()

    # -- barriers --

    def arrive(self, instance: str, name: str) -> JobState:
        with self._change():
            member = self._members.worker(instance)
            generation = self._life.row.generation
            self._store.arrive(generation, name, instance, member.rank)
            return self._life.state()

    def arrived(self, name: str) -> Arrived:
        with self._lock:
            ranks = self._store.arrivals(self._life.row.generation, name).values()
            return Arrived(ranks=tuple(sorted(set(ranks))))

    # -- people --

    def status(self) -> Status:
        with self._lock:
            return self._board.status()

    def events(self, after: int = 0) -> Events:
        with self._lock:
            return self._events.after(after)

    # -- the process around it --

    def tick(self) -> None:
        """Look at all deadlines; call it about twice a second."""
        with self._change():
            self._watch.check()

    def ended(self) -> bool:
        """The job is over and every member has left."""
        with self._lock:
            return self._life.over and not self._members.all_live()


def _difference(
    role: str, address: str, ours: Mapping[str, Any], theirs: Mapping[str, Any] | None
) -> str:
    keys = sorted(
        key for key in {*ours, *(theirs or ours)} if theirs and ours.get(key) != theirs.get(key)
    )
    named = [
        f"{key} is {theirs.get(key)!r} there, {ours.get(key)!r} here" for key in keys if theirs
    ]
    what = "; ".join(named[:_MOST_NAMED]) or "their digests differ"
    return (
        f"the {role} at {address} was started with another job than the coordinator ({what}); "
        "give all processes of a job the same job file and --set options"
    )
