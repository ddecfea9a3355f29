"""Runs one server and one probing worker to their end, and reads what they left."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from running_job import ROOT, wait_until

from fleet_config.job import Job

PROBE = Path(__file__).with_name("probe.py")
SECONDS = 120.0


@dataclass(frozen=True)
class Left:
    """What a probing worker left in its directory."""

    directory: Path

    def dense(self, moment: str) -> dict[str, np.ndarray]:
        with np.load(self.directory / f"{moment}.npz") as values:
            return dict(values)

    def rows(self, moment: str, table: int = 0) -> dict[int, list[float]]:
        """A sparse table: id -> unseen_days, delta_score, show, click, then values and state."""
        found = {}
        for file in sorted((self.directory / moment / f"{table:03}").glob("part-*")):
            content = file.read_bytes()
            text = gzip.decompress(content) if file.suffix == ".gz" else content
            for line in text.decode().splitlines():
                key, _slot, *values = line.split()
                found[int(key)] = [float(value) for value in values]
        return found

    def pulled(self, table: str = "embedding") -> list[np.ndarray]:
        """Per batch: what the worker pulled, [rows, slots, dim]."""
        with np.load(self.directory / f"pulled-{table}.npz") as values:
            return [values[name] for name in values.files]

    def rows_by_server(self, moment: str, table: int = 0) -> dict[int, int]:
        """How many rows of a table each server holds."""
        found: dict[int, int] = {}
        for file in (self.directory / moment / f"{table:03}").glob("part-*.gz"):
            server = int(file.name.split("-")[1])
            lines = gzip.decompress(file.read_bytes()).count(b"\n")
            found[server] = found.get(server, 0) + lines
        return found

    def sent(self) -> int:
        """Bytes that the worker wrote, nearly all of them to servers, in the first epoch."""
        return int((self.directory / "sent").read_text())

    def server_dense(self, moment: str) -> np.ndarray:
        """All dense values on the server, in the order of the sorted names, to 6 digits."""
        files = sorted((self.directory / moment / "001").glob("part-*.gz"))
        text = "".join(gzip.decompress(file.read_bytes()).decode() for file in files)
        return np.array([float(line.split()[0]) for line in text.splitlines()])

    def status(self) -> dict[str, Any]:
        return json.loads((self.directory / "status.json").read_text())


def run_probe(
    job: Job, directory: Path, *ports: int, step_by_step: bool = False, shrinks: int = 0
) -> Left:
    """A server per port, one worker with job.cluster.threads threads; fails unless it ends well.

    `step_by_step`: each batch's pushes reach the server alone and before the next batch.
    `shrinks`: evictions after the end, as if after so many epochs in which no id was seen.
    """
    endpoints = [f"127.0.0.1:{port}" for port in ports]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(endpoints),
        "PADDLE_TRAINERS_NUM": "1",
        "PADDLE_TRAINER_ID": "0",
        "PADDLE_PORT": str(ports[0]),
        "POD_IP": "127.0.0.1",
        "STEP_BY_STEP": "1" if step_by_step else "",
        "SHRINKS": str(shrinks),
    }
    servers: list[subprocess.Popen[bytes]] = []
    try:
        for port in ports:
            own = {**env, "TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(port)}
            servers.append(_start("server", directory, job, own, f"server-{port}"))
        wait_until(lambda: _all_healthy(endpoints, servers), SECONDS, "the servers")
        worker = _start("worker", directory, job, {**env, "TRAINING_ROLE": "TRAINER"}, "worker")
        code = worker.wait(SECONDS)
        assert code == 0, (directory / "worker" / "log").read_text()[-5000:]
    finally:
        for server in servers:
            server.send_signal(signal.SIGKILL)
            server.wait()
    return Left(directory / "worker")


def run_local_probe(job: Job, directory: Path) -> Left:
    """The same without servers."""
    local = _start("local", directory, job, {**os.environ, "PYTHONPATH": str(ROOT)}, "local")
    assert local.wait(SECONDS) == 0, (directory / "local" / "log").read_text()[-5000:]
    return Left(directory / "local")


def _start(
    kind: str, directory: Path, job: Job, env: dict[str, str], name: str
) -> subprocess.Popen[bytes]:
    place = directory / name
    place.mkdir(parents=True)
    (place / "job.json").write_text(job.model_dump_json())
    with (place / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(PROBE), kind], cwd=place, env=env, stdout=log, stderr=log
        )


def _all_healthy(endpoints: list[str], servers: list[subprocess.Popen[bytes]]) -> bool:
    for server in servers:
        assert server.poll() is None, "a server has ended; see its log"
    return all(map(healthy, endpoints))


def healthy(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{endpoint}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
