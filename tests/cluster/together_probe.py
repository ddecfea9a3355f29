"""A worker that trains a linear model and leaves what it ends with.

It leaves its dense values at the end as end.npz, before it has asked the servers; worker 0
also the servers' tables as Paddle saves them, in end/, and their dense values as servers-end.npz.
Each leaves the times at which its batches ended, one per line, in steps.txt.

Who begins from a checkpoint leaves in begin.npz what it begins with, its optimizer's state too, and
worker 0 the tables in begin/. With FLEETPS_PROBE_SAVE worker 0 ends with a checkpoint there.

FLEETPS_PROBE_SLOW: seconds that each batch takes longer on this worker. All begin their second
batch together.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from probe import save_tables

from fleet_config.job import Job
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.messages import Chore
from fleetps.data.dataset import Dataset
from fleetps.training import child, worker
from fleetps.training.build import Hook, Programs
from fleetps.training.engines import ServerEngine


class LeavingEngine(ServerEngine):
    """Leaves what there is at the end."""

    def build(self, job: Job, dataset: Dataset, on_batch: Hook, on_evaluated: Hook) -> Programs:
        slow = float(os.environ["FLEETPS_PROBE_SLOW"])
        with Path("steps.txt").open("w") as steps:
            descriptor = os.dup(steps.fileno())

        def timed(loss: Any, label: Any) -> None:
            time.sleep(slow)
            os.write(descriptor, f"{time.monotonic()}\n".encode())
            self._meet(job.cluster.workers)
            on_batch(loss, label)

        programs = super().build(job, dataset, timed, on_evaluated)
        if self._meeting.restore:
            self._leave("begin")
        return programs

    def _meet(self, workers: int) -> None:
        Path("begun").touch()
        while len(list(Path("..").glob("worker-*/begun"))) < workers:
            time.sleep(0.001)

    def close(self) -> None:
        self._leave("end")
        if "FLEETPS_PROBE_SAVE" in os.environ:
            self._save(Path(os.environ["FLEETPS_PROBE_SAVE"]))
        super().close()

    def _save(self, directory: Path) -> None:
        self.leave_state(directory)
        self._client.arrive(self._instance, "state-left")
        if self._rank == 0:
            while len(self._client.arrived("state-left").ranks) < self._job.cluster.workers:
                time.sleep(0.01)
            chore = Chore(
                name="save", action="save", epoch=0, number=1, directory=str(directory), progress={}
            )
            Path("saved").write_text(self.chore(chore))

    def _leave(self, name: str) -> None:
        """Dense values and state as they are here; worker 0: the servers' too."""
        scope = paddle.static.global_scope()
        names = [*self._programs.dense, *self._programs.state]
        np.savez(f"{name}.npz", **{n: np.array(scope.find_var(n).get_tensor()) for n in names})
        if self._rank == 0:
            save_tables(name)
            self.refresh()
            dense = {n: np.array(scope.find_var(n).get_tensor()) for n in self._programs.dense}
            np.savez(f"servers-{name}.npz", **dense)


def work() -> None:
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    instance = os.environ["FLEETPS_INSTANCE"]
    job, dataset = child.load(rank)
    client = CoordinatorClient.from_environment()
    engine = LeavingEngine(client, instance, rank)
    worker.Worker(job, dataset, client, instance, engine).run()
