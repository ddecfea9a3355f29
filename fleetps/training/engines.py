"""Where parameters live: on servers, or in this process. The worker's loop doesn't know which."""

from __future__ import annotations

import time
from typing import Protocol

import paddle
from paddle.distributed import fleet

from fleet_config.errors import TryAgain
from fleet_config.job import Job
from fleetps import paddle_compat
from fleetps.coordinator.protocol import Coordinator
from fleetps.data.dataset import Dataset
from fleetps.training import build

INITIALISED = "dense-initialised"
POLL_SECONDS = 0.1


class Engine(Protocol):
    """What the worker's loop needs of the parameters."""

    def build(
        self, job: Job, dataset: Dataset, on_batch: build.Hook, on_evaluated: build.Hook
    ) -> build.Programs:
        """Build the programs and make the parameters ready."""

    def refresh(self) -> None:
        """Take over the newest dense parameters."""

    def flush(self) -> None:
        """Return when everything that was learnt here is where others see it."""

    def close(self) -> None:
        """Leave the servers."""


class LocalEngine:
    """One process, no servers."""

    def build(
        self, job: Job, dataset: Dataset, on_batch: build.Hook, on_evaluated: build.Hook
    ) -> build.Programs:
        """See `Engine`."""
        programs = build.build_local(job, dataset, on_batch, on_evaluated)
        paddle.static.Executor(paddle.CPUPlace()).run(programs.startup)
        return programs

    def refresh(self) -> None:
        """Nothing to do: there is one copy."""

    def flush(self) -> None:
        """Nothing to do: there is one copy."""

    def close(self) -> None:
        """Nothing to leave."""


class ServerEngine:
    """Parameters on the job's servers."""

    def __init__(self, client: Coordinator, instance: str, rank: int) -> None:
        self._client = client
        self._instance = instance
        self._rank = rank

    def build(
        self, job: Job, dataset: Dataset, on_batch: build.Hook, on_evaluated: build.Hook
    ) -> build.Programs:
        """See `Engine`. Worker 0's initial dense values go to the servers before anybody pulls."""
        paddle_compat.init_role()
        programs = build.build_worker(job, dataset, on_batch, on_evaluated)
        paddle.static.Executor(paddle.CPUPlace()).run(programs.startup)
        self._wait_for_servers(job)
        if self._rank != 0:
            self._wait_for_initial_values(job.cluster.deadlines.barrier)
        elif 0 in self._client.arrived(INITIALISED).ranks:
            paddle_compat.skip_restart_init()
        fleet.init_worker()
        self._client.arrive(self._instance, INITIALISED)
        return programs

    def _wait_for_servers(self, job: Job) -> None:
        """Paddle aborts the process when it connects to a server that isn't up yet."""
        deadline = job.cluster.deadlines.rendezvous + job.cluster.deadlines.server_start
        end = time.monotonic() + deadline
        while not (meeting := self._client.rendezvous(self._instance)).complete:
            if time.monotonic() > end:
                raise TryAgain(
                    f"worker {self._rank} waited {deadline:g} s for {', '.join(meeting.missing)} "
                    "(cluster.deadlines.rendezvous and server_start)"
                )
            time.sleep(POLL_SECONDS)

    def _wait_for_initial_values(self, deadline: float) -> None:
        end = time.monotonic() + deadline
        while 0 not in self._client.arrived(INITIALISED).ranks:
            if time.monotonic() > end:
                raise TryAgain(
                    f"worker {self._rank} waited {deadline:g} s for worker 0 to send the initial "
                    "dense parameters (cluster.deadlines.barrier)"
                )
            time.sleep(POLL_SECONDS)

    def refresh(self) -> None:
        """See `Engine`."""
        paddle_compat.pull_dense()

    def flush(self) -> None:
        """See `Engine`."""
        paddle_compat.flush()

    def close(self) -> None:
        """See `Engine`."""
        fleet.stop_worker()
