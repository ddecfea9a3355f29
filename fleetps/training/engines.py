"""Where parameters live: on servers, or in this process. The worker's loop doesn't know which."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Protocol

import paddle
from paddle.distributed import fleet

from fleet_config.errors import FleetError, TryAgain
from fleet_config.job import Job
from fleet_config.tables import local_rows
from fleetps import paddle_compat
from fleetps.checkpoint.store import open_checkpoint
from fleetps.coordinator.client import ADDRESS
from fleetps.coordinator.messages import INITIALISED, SAVE_ERROR, Chore, Rendezvous
from fleetps.coordinator.protocol import Coordinator
from fleetps.data.dataset import Dataset
from fleetps.system.ports import unreachable
from fleetps.training import build, dense, group, snapshot, sparse
from fleetps.training.build import Hook, Programs

POLL_SECONDS = 0.1


class Engine(Protocol):
    """What the worker's loop needs of the parameters."""

    def build(self, job: Job, dataset: Dataset, on_batch: Hook, on_evaluated: Hook) -> Programs:
        """Build the programs and make the parameters ready."""

    def enter(self, mode: str) -> int:
        """Make ready to train in this mode; called before every training task.

        Returns:
            How many workers make each step together.
        """

    def prepare(self, data: Any, *, training: bool) -> None:
        """A task is about to begin; its rows are in memory."""

    def task_done(self) -> None:
        """A training task has ended."""

    def chore(self, chore: Chore) -> str:
        """Do what the coordinator asks one worker to do while nobody trains.

        Returns:
            The note to arrive with.
        """

    def refresh(self) -> None:
        """Take over the newest dense parameters."""

    def flush(self) -> None:
        """Return when everything that was learnt here is where others see it."""

    def leave_state(self, directory: Path) -> None:
        """Leave the optimizer's state for a checkpoint."""

    def close(self) -> None:
        """Leave the servers."""


class LocalEngine:
    """One process, no servers: every mode is the same."""

    _programs: Programs
    _settle: Any | None = None

    def build(self, job: Job, dataset: Dataset, on_batch: Hook, on_evaluated: Hook) -> Programs:
        """See `Engine`."""
        rows = local_rows(dataset.distinct_ids)
        self._programs = build.build_local(job, dataset, rows, on_batch, on_evaluated)
        _run(self._programs.startup)
        return self._programs

    def enter(self, mode: str) -> int:
        """There is nobody to agree with."""
        self._settle = self._programs.settle[mode]
        return 1

    def prepare(self, data: Any, *, training: bool) -> None:
        """Nothing to fetch."""

    def task_done(self) -> None:
        """Nothing to exchange."""

    def chore(self, chore: Chore) -> str:  # noqa: ARG002 - as the protocol has it
        """Nothing to do: such jobs are refused."""
        return ""

    def refresh(self) -> None:
        """Nothing to do: there is one copy."""

    def flush(self) -> None:
        """See `Engine`."""
        _finish_accumulation(self._settle)

    def leave_state(self, directory: Path) -> None:
        """Nothing to do: a process without servers keeps no checkpoints."""

    def close(self) -> None:
        """Nothing to leave."""


class ServerEngine:
    """Parameters on the job's servers.

    In `sync` the dense ones are the workers' own, equal on all of them; the servers get them from
    worker 0 at every flush, so that what the servers hold is always a whole model.
    """

    _programs: Programs
    _job: Job
    _dataset: Dataset
    _meeting: Rendezvous

    def __init__(self, client: Coordinator, instance: str, rank: int) -> None:
        self._client = client
        self._instance = instance
        self._rank = rank
        self._mode = ""
        self._connected = False

    def build(self, job: Job, dataset: Dataset, on_batch: Hook, on_evaluated: Hook) -> Programs:
        """See `Engine`.

        Worker 0 gives the servers what a generation begins with, its initial dense values or a
        checkpoint, before anybody else pulls.
        """
        paddle_compat.init_role()
        self._job = job
        self._dataset = dataset
        self._programs = self.programs(job, dataset, on_batch, on_evaluated)
        _run(self._programs.startup)
        self._meeting = self._wait_for_servers(job)
        restore = self._meeting.restore
        checkpoint = open_checkpoint(Path(restore)) if restore else None
        if self._rank != 0:
            self._wait_for_initial_values(job, restores=bool(restore))
        begun = 0 in self._client.arrived(INITIALISED).ranks
        if checkpoint or begun:
            paddle_compat.skip_restart_init()
        fleet.init_worker()
        if checkpoint and not begun:
            snapshot.restore_servers(checkpoint, job, self._meeting.servers, self._programs.dense)
        if checkpoint:
            snapshot.take_state(checkpoint, self._rank, self._programs.state)
        self._client.arrive(self._instance, INITIALISED)
        return self._programs

    def programs(self, job: Job, dataset: Dataset, on_batch: Hook, on_evaluated: Hook) -> Programs:
        """What `build` makes ready."""
        return build.build_worker(job, dataset, on_batch, on_evaluated)

    def enter(self, mode: str) -> int:
        """See `Engine`. Who enters `sync` takes the servers' dense values; worker 0's state holds.

        Everybody has flushed before, as modes change between epochs.
        """
        if mode == "sync" and self._mode != "sync":
            self.refresh()
            if self._programs.agree is not None:
                self._connect()
                with group.steps_of_all():
                    _run(self._programs.agree)
        self._mode = mode
        return self._job.cluster.workers if mode == "sync" else 1

    def prepare(self, data: Any, *, training: bool) -> None:
        """Nothing to fetch: every batch pulls what it needs."""

    def task_done(self) -> None:
        """Nothing to exchange: it was pushed as it was learnt."""

    def chore(self, chore: Chore) -> str:
        """See `Engine`."""
        if chore.action == "shrink":
            servers = self._meeting.servers
            before = snapshot.rows_of_tables(self._job, servers)
            sparse.shrink(self._job, chore.epoch)
            after = snapshot.rows_of_tables(self._job, servers)
            evicted = {name: (before[name] - after[name], before[name]) for name in before}
            return ", ".join(
                f"{gone} of {all_rows} rows of table {name} were evicted"
                for name, (gone, all_rows) in evicted.items()
            )
        self.refresh()
        meeting, dense_names = self._meeting, self._programs.dense
        try:
            return snapshot.save(
                self._job, self._dataset, chore, meeting.generation, meeting.servers, dense_names
            ).name
        except FleetError as error:
            return f"{SAVE_ERROR}{error}"

    def leave_state(self, directory: Path) -> None:
        """See `Engine`."""
        snapshot.leave_state(directory, self._rank, self._programs.state)

    def _connect(self) -> None:
        if self._connected:
            return
        cluster = self._job.cluster
        group.form(
            self._client,
            os.environ[ADDRESS],
            self._instance,
            self._rank,
            cluster.workers,
            cluster.deadlines.barrier,
        )
        self._connected = True

    def _wait_for_servers(self, job: Job) -> Rendezvous:
        """Paddle aborts the process when it connects to a server that isn't up yet."""
        deadlines = job.cluster.deadlines
        deadline = deadlines.rendezvous + deadlines.checkpoint + deadlines.server_start
        end = time.monotonic() + deadline
        while not (meeting := self._client.rendezvous(self._instance)).complete:
            if time.monotonic() > end:
                raise TryAgain(
                    f"worker {self._rank} waited {deadline:g} s for {', '.join(meeting.missing)} "
                    "(cluster.deadlines.rendezvous, checkpoint and server_start)"
                )
            time.sleep(POLL_SECONDS)
        end = time.monotonic() + deadlines.server_start
        while lost := unreachable(meeting.servers):
            if time.monotonic() > end:
                raise TryAgain(
                    f"could not reach {lost} within {deadlines.server_start:g} s "
                    "(cluster.deadlines.server_start)"
                )
            time.sleep(POLL_SECONDS)
        return meeting

    def _wait_for_initial_values(self, job: Job, *, restores: bool) -> None:
        name = "checkpoint" if restores else "barrier"
        deadline = getattr(job.cluster.deadlines, name)
        end = time.monotonic() + deadline
        while 0 not in self._client.arrived(INITIALISED).ranks:
            if time.monotonic() > end:
                raise TryAgain(
                    f"worker {self._rank} waited {deadline:g} s for worker 0 to send the initial "
                    f"parameters (cluster.deadlines.{name})"
                )
            time.sleep(POLL_SECONDS)

    def refresh(self) -> None:
        """See `Engine`."""
        paddle_compat.pull_dense()

    def flush(self) -> None:
        """See `Engine`."""
        _finish_accumulation(self._programs.settle.get(self._mode))
        paddle_compat.flush()
        if self._mode == "sync" and self._rank == 0:
            paddle_compat.push_dense()

    def close(self) -> None:
        """See `Engine`."""
        fleet.stop_worker()


def _run(program: Any) -> None:
    paddle.static.Executor(paddle.CPUPlace()).run(program)


def _finish_accumulation(settle: Any | None) -> None:
    if settle is not None and dense.batches_accumulated():
        _run(settle)
