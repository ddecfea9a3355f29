"""Seconds from a kill -9 until rows are trained again, and what checkpoints cost.

    python benchmarks/recovery.py [--rounds 3] [--write]

One job per round, with a table of 1,000,000 rows of dim 17 on 2 servers and 2 workers, and the
pieces killed in turn: a worker's process, a server's, the coordinator's, then all processes at once
and the same command again.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import auc
import psutil

from fleet_config.errors import FleetError
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.reports import Status

KEY = "of-this-benchmark"
GOALS = {"worker": 5, "server": 20, "coordinator": 5, "whole job": 25}
PATIENCE = 300.0
SETTINGS = {
    "job.name": "recovery",
    "job.epochs": 1000,
    "data.synthetic.rows": 200_000,
    "data.synthetic.test_rows": 1_000,
    "data.synthetic.distinct_ids": 1_040_000,
    "data.synthetic.zipf": 0,
    "data.task_rows": 5_000,
    "evaluate.every_epochs": 0,
    "checkpoint.every": "{epochs: 1}",
}


class Job:
    """A launched job that is watched through its coordinator."""

    def __init__(self, place: str, output: str) -> None:
        settings = {**SETTINGS, "data.path": f"{place}/data", "job.output": output}
        self._command = [*auc.FLEETPS, "launch", "--config", "conf/quickstart.yaml"]
        self._command += [f"--set={key}={value}" for key, value in settings.items()]
        self._run = Path(output) / "recovery"

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            cwd=auc.ROOT,
            env={**os.environ, "FLEETPS_TOKEN": KEY},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def status(self) -> Status | None:
        """None while the coordinator can't be asked."""
        try:
            address = (self._run / "coordinator.address").read_text().strip()
            with CoordinatorClient(address, KEY, deadline=1.0) as client:
                return client.status()
        except (FleetError, OSError):
            return None

    def wait(self, what: str, true: Callable[[Status], bool]) -> Status:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            status = self.status()
            if status is not None and true(status):
                return status
            if self._process.poll() is not None:
                sys.exit(f"the job ended while {what} was waited for: {self._process.returncode}")
            time.sleep(0.05)
        sys.exit(f"waited {PATIENCE:g} s for {what}")

    def pids(self, *words: str) -> list[int]:
        """Of the job's processes whose command line has all these words."""
        launcher = psutil.Process(self._process.pid)
        family = [launcher, *launcher.children(recursive=True)]
        return [p.pid for p in family if all(word in command(p) for word in words)]

    def seconds_after(
        self,
        kill: Callable[[], None],
        noticed: Callable[[Status], bool],
        rows: Callable[[Status], int],
    ) -> float:
        """Until rows are trained that were not yet when the loss was noticed."""
        start = time.monotonic()
        kill()
        then = rows(self.wait("the loss", noticed))
        self.wait("training", lambda status: rows(status) > then)
        return time.monotonic() - start

    def checkpoint_seconds(self) -> tuple[float, float, list[float]]:
        """Of the last checkpoint: the pause, and the engine's part; and of all restores."""
        logs = "".join(log.read_text() for log in self._run.glob("logs/worker-*.log"))
        engine = [float(seconds) for seconds in re.findall(r"engine ([0-9.]+) s, verified", logs)]
        restores = re.findall(r"restored .* in ([0-9.]+) s", logs)
        status = self.status()
        pause = status.checkpoint.pause if status else 0.0
        return pause, engine[-1], [float(seconds) for seconds in restores]

    def kill_all(self) -> None:
        """Every process at once; then the same command again."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        self.start()

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)


def command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""


def round_of(place: str, number: int) -> dict[str, float]:
    """One job; seconds by what was measured."""
    job = Job(place, f"{place}/{number}")
    job.start()
    try:
        return measure(job)
    finally:
        job.end()


def measure(job: Job) -> dict[str, float]:
    found: dict[str, float] = {}
    saved = job.wait("a checkpoint", lambda s: s.checkpoint.number >= 1)
    found["rows of the table"] = sum(sum(server.rows.values()) for server in saved.servers)
    found["checkpoint pause"], found["engine's own save"], _ = job.checkpoint_seconds()
    before = job.wait("training", lambda s: s.phase == "train")
    pid = job.pids("fleetps.training.worker")[0]
    rank = int(psutil.Process(pid).environ()["PADDLE_TRAINER_ID"])
    found["worker"] = job.seconds_after(
        lambda: os.kill(pid, signal.SIGKILL),
        lambda s: s.workers_lost > before.workers_lost,
        lambda s: next(worker.rows for worker in s.workers if worker.rank == rank),
    )
    found["server"] = job.seconds_after(
        lambda: os.kill(job.pids("fleetps.training.server")[0], signal.SIGKILL),
        lambda s: s.generation > before.generation,
        lambda s: s.rows_done,
    )
    job.wait("training", lambda s: s.phase == "train")
    found["coordinator"] = job.seconds_after(
        lambda: os.kill(job.pids("fleetps.coordinator", "--job")[0], signal.SIGKILL),
        lambda s: s.phase == "train",
        lambda s: s.rows_done,
    )
    job.wait("no checkpoint under way", lambda s: not s.checkpoint.pending)
    found["whole job"] = job.seconds_after(
        job.kill_all, lambda s: s.phase == "train", lambda s: s.rows_done
    )
    found["restore"] = job.checkpoint_seconds()[2][-1]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.rounds):
            rounds.append(round_of(place, number))
            print(f"round {number + 1}: {rounds[-1]}", flush=True)
    medians = {what: statistics.median(one[what] for one in rounds) for what in rounds[0]}
    auc.finish(report(medians, options.rounds), "recovery.md", write=options.write)


def report(medians: dict[str, float], rounds: int) -> str:
    rows = medians["rows of the table"]
    pause, engine = medians["checkpoint pause"], medians["engine's own save"]
    lines = [
        "# Recovery",
        "",
        (
            f"Command: `python benchmarks/recovery.py --rounds {rounds}`, "
            f"{datetime.date.today().isoformat()}, {auc.machine()}."
        ),
        "",
        f"2 servers, 2 workers, {rows:,.0f} rows of dim 17 (AdaGrad); medians of {rounds}.",
        "",
        "| kill -9 of | seconds until rows are trained again | goal |",
        "|---|---|---|",
        *(f"| {what} | {medians[what]:.1f} | {goal} |" for what, goal in GOALS.items()),
        "",
        (
            f"A checkpoint stops training for {pause:.1f} s, {pause / engine:.2f} times the "
            f"{engine:.1f} s of the engine's own save (goal 1.3). A restore takes "
            f"{medians['restore']:.1f} s, {rows / medians['restore']:,.0f} rows/s."
        ),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
