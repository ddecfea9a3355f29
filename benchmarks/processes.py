"""Runs one configuration of the throughput benchmark in processes of its own."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setups import Data, Setup

from fleet_config.cpu import MKL_VARIABLE, mkl_setting
from fleet_config.job import Job
from fleetps.system.ports import free_ports
from fleetps.system.process import Child, end_all

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 900.0
PASSES = 3


def measure(setup: Setup, place: Path, data: Data) -> float:
    """Examples per second: median of the passes, over all workers together."""
    results = run(setup, place, data, PASSES)
    rows = sum(result["rows"] for result in results)
    passes = zip(*(result["passes"] for result in results), strict=True)
    return statistics.median(
        rows / (max(end for _, end in spans) - min(s for s, _ in spans)) for spans in passes
    )


def run(setup: Setup, place: Path, data: Data, passes: int) -> list[dict[str, Any]]:
    """Of each worker: the rows of a pass, and when each pass began and ended (seconds)."""
    place.mkdir(parents=True)
    endpoints = [f"127.0.0.1:{port}" for port in free_ports(setup.servers)]
    job = job_of(setup, place, data)

    def begin(kind: str, count: int) -> list[Child]:
        return [start(setup, job, place, kind, rank, endpoints, passes) for rank in range(count)]

    servers = begin("server", setup.servers)
    workers = []
    try:
        for endpoint in endpoints:
            wait_for_server(endpoint)
        kind = "local" if setup.local else "worker"
        workers = begin(kind, setup.workers)
        for worker in workers:
            if worker.wait(SECONDS) != 0:
                sys.exit(f"{setup.name}: {worker.name} failed:\n{worker.log.read_text()[-3000:]}")
    finally:
        end_all([*workers, *servers], 1.0)
    return [
        json.loads((place / f"{kind}-{rank}" / "passes.json").read_text())
        for rank in range(setup.workers)
    ]


def job_of(setup: Setup, place: Path, data: Data) -> Job:
    ours = data.packed if setup.reading else data.plain
    path = data.apart if setup.kind == "naive" else ours
    return Job.model_validate(
        {
            "job": {"name": "throughput", "output": str(place)},
            "mode": setup.mode,
            "cluster": {
                "servers": max(1, setup.servers),
                "workers": setup.workers,
                "threads": setup.threads,
                "server_cores": 1 if setup.pinned else 2,
            },
            "data": {"path": str(path), "batch_size": setup.batch},
            "model": {"name": "dnn", "params": {"hidden": [256, 128, 64]}},
            "optimizer": {"name": setup.optimizer, "learning_rate": 0.001},
            "tables": {
                "embedding": {
                    "dim": 16,
                    "rule": {"name": {"sgd": "naive", "adam": "adam"}[setup.optimizer]},
                }
            },
        }
    )


def start(
    setup: Setup,
    job: Job,
    place: Path,
    kind: str,
    rank: int,
    endpoints: Sequence[str],
    passes: int,
) -> Child:
    directory = place / f"{kind}-{rank}"
    directory.mkdir()
    (directory / "job.json").write_text(job.model_dump_json())
    settings = {
        "rank": rank,
        "workers": setup.workers,
        "mode": setup.mode,
        "naive": setup.kind == "naive",
        "local": setup.local,
        "reading": setup.reading,
        "hook": setup.hook,
        "passes": passes,
    }
    (directory / "child.json").write_text(json.dumps(settings))
    mkl = None if setup.kind == "naive" else mkl_setting()
    host, port = endpoints[rank].split(":") if kind == "server" else ("127.0.0.1", "0")
    env = {
        **os.environ,
        **({MKL_VARIABLE: mkl} if mkl else {}),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "FLEETPS_COORDINATOR": "127.0.0.1:9",  # tells a sync group which interface is its own
        "FLAGS_LAUNCH_BARRIER": "0",
        "PADDLE_WITH_GLOO": "0",
        "TRAINING_ROLE": "PSERVER" if kind == "server" else "TRAINER",
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(endpoints),
        "PADDLE_TRAINERS_NUM": str(setup.workers),
        "PADDLE_TRAINER_ID": str(rank),
        "POD_IP": host,
        "PADDLE_PORT": port,
    }
    command = [sys.executable, str(ROOT / "benchmarks" / "throughput_child.py"), kind]
    if setup.pinned:
        command = ["taskset", "-c", "0" if kind == "server" else "1", *command]
    return Child(f"{kind} {rank}", command, log=directory / "log", env=env, cwd=directory)


def wait_for_server(endpoint: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://{endpoint}/health", timeout=1):
                return
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(f"the server at {endpoint} did not start")
            time.sleep(0.05)
