"""A worker in mode geo that does what it is told, or the product's own loop."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from probe import save_tables

from fleetps.coordinator.messages import Arrived, Rendezvous, Slice, Task
from fleetps.coordinator.service import JobService
from fleetps.training import child, worker
from fleetps.training.feed import Feed, LoadingTask
from fleetps.training.geo_engine import GeoEngine


class Coordinator:
    """Says what an engine asks for; the test starts worker 0 first."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def rendezvous(self, _instance: str) -> Rendezvous:
        return Rendezvous(
            complete=True,
            servers=(),
            workers=self._workers,
            learners=self._workers,
            missing=(),
            waited=0.0,
            generation=0,
        )

    def arrive(self, _instance: str, _name: str) -> None: ...

    def arrived(self, _name: str) -> Arrived:
        return Arrived(ranks=(0,) if os.environ["PADDLE_TRAINER_ID"] != "0" else (), notes={})


class Puppet:
    """One worker, call by call."""

    def __init__(self) -> None:
        rank = int(os.environ["PADDLE_TRAINER_ID"])
        self._job, self._dataset = child.load(rank)
        coordinator: Any = Coordinator(int(os.environ["PADDLE_TRAINERS_NUM"]))
        self._engine = GeoEngine(coordinator, "puppet", rank)
        self._programs = self._engine.build(
            self._job, self._dataset, lambda *_: None, lambda *_: None
        )
        self._engine.enter("geo")
        self._feed = Feed(self._programs.feeds, self._dataset.columns, 1, Path("slices").absolute())
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        self._loading: LoadingTask | None = None

    def prepare(self, start: int, rows: int, *, training: bool) -> None:
        """With rows of the split train."""
        if self._loading is not None:
            self._loading.release()
        shard = self._dataset.shard_path(self._dataset.split("train").shards[0])
        task = Task(
            id=start,
            generation=0,
            epoch=0,
            split="train",
            training=training,
            slices=(Slice(shard=str(shard), start=start, rows=rows),),
            rows=rows,
            rows_before=0,
            shuffle_seed=None,
        )
        self._loading = self._feed.start(task, self._job.data.batch_size)
        self._data = self._loading.wait()
        self._engine.prepare(self._data, training=training)

    def train(self) -> None:
        self._executor.train_from_dataset(self._programs.train["geo"], self._data)

    def refresh(self) -> None:
        self._engine.refresh()

    def task_done(self) -> None:
        self._engine.task_done()

    def values(self) -> dict[str, np.ndarray]:
        """Of the dense parameters and the local tables."""
        scope = paddle.static.global_scope()
        names = [*self._programs.dense, *self._job.tables]
        return {name: np.array(scope.find_var(name).get_tensor()) for name in names}

    def leave(self, moment: str) -> None:
        """The servers' tables, as files."""
        save_tables(moment)

    def close(self) -> None:
        self._engine.close()


class LeavingEngine(GeoEngine):
    def close(self) -> None:
        save_tables("end")
        super().close()


def obey(connection: Connection) -> None:
    """Calls of a Puppet come; what they return goes back."""
    puppet = Puppet()
    connection.send(None)
    while True:
        name, args, kwargs = connection.recv()
        connection.send(getattr(puppet, name)(*args, **kwargs))
        if name == "close":
            return


def loop() -> None:
    """Leaves the servers' tables in end/."""
    job, dataset = child.load(0)
    service = JobService(job, dataset, local=True)
    service.register("worker", "loop", "localhost", 0, job.digest())
    worker.Worker(job, dataset, service, "loop", LeavingEngine(service, "loop", 0)).run()
