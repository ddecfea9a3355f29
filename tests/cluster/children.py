"""Servers and workers that a test makes itself: Paddle processes without agents.

They are forked from a process that has imported Paddle and done nothing else, as that import is
most of what the start of one costs.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any
from unittest import mock

from isolation import MARK, free_ports
from running_job import ROOT, wait_until

from fleet_config.job import Job

SECONDS = 120.0
_SERVER = "fleetps.training.server:serve"
_IMPORTED = ["fleetps.training.geo_engine", "fleetps.training.server", "fleetps.training.worker"]


class Child:
    """A process that does `body` ("module:function") in a directory with job.json and a log."""

    def __init__(self, body: str, place: Path, job: Job, env: dict[str, str], *args: Any) -> None:
        place.mkdir(parents=True)
        (place / "job.json").write_text(job.model_dump_json())
        self.place = place
        self._process = _forks().Process(
            target=_enter, args=(body, place, {**os.environ, **env}, args), daemon=True
        )
        self._process.start()

    def lives(self) -> bool:
        return self._process.is_alive()

    def ends(self) -> None:
        """Fails the test unless it ends well."""
        self._process.join(SECONDS)
        code = self._process.exitcode
        assert code == 0, f"{self.place.name} ended with {code}\n{self.log()}"

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def log(self) -> str:
        return (self.place / "log").read_text()[-5000:]


class Cluster:
    """The servers of a job; workers as the test starts them."""

    def __init__(self, job: Job, directory: Path, stack: ExitStack) -> None:
        self._job, self._directory, self._stack = job, directory, stack
        self.endpoints = [f"127.0.0.1:{port}" for port in free_ports(job.cluster.servers)]

    def start_servers(self) -> None:
        """Returns when they serve."""
        started = [
            self._start(_SERVER, "server", rank, endpoint.split(":")[1])
            for rank, endpoint in enumerate(self.endpoints)
        ]
        for server, endpoint in zip(started, self.endpoints, strict=True):
            wait_until(lambda s=server, e=endpoint: _serves(s, e), SECONDS, "a server", server.log)

    def worker(self, rank: int, body: str, *args: Any, **env: str) -> Child:
        return self._start(body, "worker", rank, "0", *args, **env)

    def _start(self, body: str, kind: str, rank: int, port: str, *args: Any, **env: str) -> Child:
        role = {
            "PYTHONPATH": str(ROOT),  # for what it starts itself
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.endpoints),
            "PADDLE_TRAINERS_NUM": str(self._job.cluster.workers),
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_PORT": port,
            "POD_IP": "127.0.0.1",
            "TRAINING_ROLE": "PSERVER" if kind == "server" else "TRAINER",
            "FLEETPS_RANK": str(rank),
        }
        place = self._directory / f"{kind}-{rank}"
        started = Child(body, place, self._job, {**role, **env}, *args)
        self._stack.callback(started.kill)
        return started


@contextmanager
def cluster(job: Job, directory: Path) -> Iterator[Cluster]:
    """All its processes are gone at the end."""
    with ExitStack() as stack:
        made = Cluster(job, directory, stack)
        made.start_servers()
        yield made


@functools.cache
def _forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}):
        os.environ.pop(MARK, None)  # no single test's
        forkserver.ensure_running()
    return context


def _enter(body: str, place: Path, env: dict[str, str], args: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(place)
    with open("log", "wb") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
    from fleetps.training import child, stopping  # noqa: PLC0415  not for the test's own process

    importlib.reload(stopping)  # its thread was not forked
    importlib.import_module("probe_models")
    module, _, name = body.partition(":")
    child.run(lambda: getattr(importlib.import_module(module), name)(*args))


def _serves(server: Child, endpoint: str) -> bool:
    assert server.lives(), server.log()
    try:
        with urllib.request.urlopen(f"http://{endpoint}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
