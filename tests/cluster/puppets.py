"""Servers and workers in mode geo, each call of a worker made by the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
from children import SECONDS, Cluster, cluster
from probe_job import Left

from fleet_config.job import Job


class Worker:
    """A process that obeys as `puppet_probe.Puppet`."""

    def __init__(self, servers: Cluster, rank: int) -> None:
        self._connection, theirs = Pipe()
        self._process = servers.worker(rank, "puppet_probe:obey", theirs)
        theirs.close()
        self.left = Left(self._process.place)
        self._moments = 0
        self._answer()

    def _answer(self) -> Any:
        """Fails the test if there is none."""
        try:
            assert self._connection.poll(SECONDS), self._process.log()
            return self._connection.recv()
        except EOFError as error:
            raise AssertionError(self._process.log()) from error

    def ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._connection.send((name, args, kwargs))
        return self._answer()

    def prepare(self, start: int, rows: int, *, training: bool = True) -> None:
        self.ask("prepare", start, rows, training=training)

    def train(self, start: int, rows: int) -> None:
        """A whole task."""
        self.prepare(start, rows)
        self.ask("train")
        self.ask("task_done")

    def values(self) -> dict[str, np.ndarray]:
        return dict(self.ask("values"))

    def on_servers(self) -> tuple[dict[int, np.ndarray], np.ndarray]:
        """Rows by number, and all dense values in the order of their sorted names; to 6 digits."""
        moment = f"moment-{self._moments}"
        self._moments += 1
        self.ask("leave", moment)
        rows = {key: np.array(row[4:]) for key, row in self.left.rows(moment).items()}
        return rows, self.left.server_dense(moment)

    def close(self) -> None:
        self.ask("close")
        self._process.ends()


@contextmanager
def puppets(job: Job, directory: Path) -> Iterator[list[Worker]]:
    """The workers of a job."""
    with cluster(job, directory) as servers:
        workers = [Worker(servers, rank) for rank in range(job.cluster.workers)]
        yield workers
        for worker in workers:
            worker.close()


def run_loop(job: Job, directory: Path) -> Left:
    """One worker with the product's own loop."""
    with cluster(job, directory) as servers:
        worker = servers.worker(0, "puppet_probe:loop")
        worker.ends()
    return Left(worker.place)
