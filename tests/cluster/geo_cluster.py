"""Servers and workers in mode geo, each call of a worker made by the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from probe_job import Left, healthy
from running_job import ROOT, wait_until

from fleet_config.job import Job

PROBE = Path(__file__).with_name("geo_probe.py")
SECONDS = 120.0


class Worker:
    """A process that runs `geo_probe.Puppet`."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection, log: Path) -> None:
        self._process = process
        self.left = Left(log.parent)
        self._connection = connection
        self._log = log
        self._moments = 0

    def answer(self) -> Any:
        """Fails the test if there is none."""
        try:
            assert self._connection.poll(SECONDS), self._log.read_text()[-5000:]
            return self._connection.recv()
        except EOFError as error:
            self._process.wait(SECONDS)
            raise AssertionError(self._log.read_text()[-5000:]) from error

    def ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._connection.send((name, args, kwargs))
        return self.answer()

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


@contextmanager
def cluster(
    job: Job, directory: Path, ports: Sequence[int], workers: int
) -> Iterator[list[Worker]]:
    """Servers at these ports, and workers."""
    env = _environment(ports, workers)
    started: list[subprocess.Popen[bytes]] = []
    found: list[Worker] = []
    with _servers(job, directory, ports, env):
        try:
            for rank in range(workers):
                own = {**env, "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(rank)}
                place = directory / f"worker-{rank}"
                ours, theirs = Pipe()
                started.append(start(place, job, own, "worker", pipe=theirs))
                theirs.close()
                found.append(Worker(started[-1], ours, place / "log"))
                found[-1].answer()
            yield found
            for worker in found:
                worker.ask("close")
            for process in started:
                assert process.wait(SECONDS) == 0
        finally:
            end(started)


def run_loop(job: Job, directory: Path, port: int) -> Left:
    """One server, one worker with the product's own loop."""
    env = _environment([port], 1)
    with _servers(job, directory, [port], env):
        own = {**env, "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "0"}
        process = start(directory / "loop", job, own, "loop")
        try:
            assert process.wait(SECONDS) == 0, (directory / "loop" / "log").read_text()[-5000:]
        finally:
            end([process])
    return Left(directory / "loop")


def _environment(ports: Sequence[int], workers: int) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"127.0.0.1:{port}" for port in ports),
        "PADDLE_TRAINERS_NUM": str(workers),
        "POD_IP": "127.0.0.1",
        "PADDLE_PORT": "0",
    }


@contextmanager
def _servers(
    job: Job, directory: Path, ports: Sequence[int], env: dict[str, str]
) -> Iterator[None]:
    started = []
    try:
        for port in ports:
            own = {**env, "TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(port)}
            started.append(start(directory / f"server-{port}", job, own, "server"))
        for port in ports:
            wait_until(lambda port=port: healthy(f"127.0.0.1:{port}"), SECONDS, "a server")
        yield
    finally:
        end(started)


def start(
    place: Path, job: Job, env: dict[str, str], kind: str, pipe: Connection | None = None
) -> subprocess.Popen[bytes]:
    place.mkdir(parents=True)
    (place / "job.json").write_text(job.model_dump_json())
    descriptors = [] if pipe is None else [pipe.fileno()]
    with (place / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(PROBE), kind, *map(str, descriptors)],
            cwd=place,
            env=env,
            stdout=log,
            stderr=log,
            pass_fds=descriptors,
        )


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
