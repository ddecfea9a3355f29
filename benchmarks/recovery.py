"""Seconds from a kill -9 until rows are trained again, and what checkpoints cost.

    python benchmarks/recovery.py [--rounds 3] [--write]

One job per round, with a table of 1,000,000 rows of dim 17 on 2 servers and 2 workers, and the
pieces killed in turn: a worker's process, a server's, the coordinator's, then all processes at once
and the same command again.
"""

from __future__ import annotations

import argparse
import datetime
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import auc
from launched import COORDINATOR, SERVER, WORKER, Job

from fleetps.coordinator.reports import Status

GOALS = {"worker": 5, "server": 20, "coordinator": 5, "whole job": 25}
SETTINGS = {
    "job.epochs": 1000,
    "data.synthetic.rows": 200_000,
    "data.synthetic.test_rows": 1_000,
    "data.synthetic.distinct_ids": 1_040_000,
    "data.synthetic.zipf": 0,
    "data.task_rows": 5_000,
    "evaluate.every_epochs": 0,
    "checkpoint.every": "{epochs: 1}",
}


def kill(job: Job, word: str, env: str = "") -> None:
    """One such process."""
    victim = job.one(word, env=env)
    if victim is not None:
        victim.kill()


def seconds_after(
    job: Job,
    kill: Callable[[], None],
    noticed: Callable[[Status], bool],
    rows: Callable[[Status], int],
) -> float:
    """Until rows are trained that were not yet when the loss was noticed."""
    start = time.monotonic()
    kill()
    then = rows(job.wait("the loss", noticed))
    job.wait("training", lambda status: rows(status) > then)
    return time.monotonic() - start


def checkpoint_seconds(job: Job) -> tuple[float, float, list[float]]:
    """Of the last checkpoint: the pause, and the engine's part; and of all restores."""
    logs = "".join(log.read_text() for log in job.run.glob("logs/worker-*.log"))
    engine = [float(seconds) for seconds in re.findall(r"engine ([0-9.]+) s, verified", logs)]
    restores = re.findall(r"restored .* in ([0-9.]+) s", logs)
    status = job.status()
    pause = status.checkpoint.pause if status else 0.0
    return pause, engine[-1], [float(seconds) for seconds in restores]


def round_of(place: Path, number: int) -> dict[str, float]:
    """One job; seconds by what was measured."""
    settings = {**SETTINGS, "data.path": place / "data"}
    job = Job("recovery", place / str(number), settings)
    job.start()
    try:
        return measure(job)
    finally:
        job.end()


def measure(job: Job) -> dict[str, float]:
    found: dict[str, float] = {}
    saved = job.wait("a checkpoint", lambda s: s.checkpoint.number >= 1)
    found["rows of the table"] = sum(sum(server.rows.values()) for server in saved.servers)
    found["checkpoint pause"], found["engine's own save"], _ = checkpoint_seconds(job)
    before = job.wait("training", lambda s: s.phase == "train")
    found["worker"] = seconds_after(
        job,
        lambda: kill(job, WORKER, env="PADDLE_TRAINER_ID=1"),
        lambda s: s.workers_lost > before.workers_lost,
        lambda s: next(worker.rows for worker in s.workers if worker.rank == 1),
    )
    found["server"] = seconds_after(
        job,
        lambda: kill(job, SERVER),
        lambda s: s.generation > before.generation,
        lambda s: s.rows_done,
    )
    job.wait("training", lambda s: s.phase == "train")
    found["coordinator"] = seconds_after(
        job,
        lambda: kill(job, COORDINATOR),
        lambda s: s.phase == "train",
        lambda s: s.rows_done,
    )
    job.wait("no checkpoint under way", lambda s: not s.checkpoint.pending)
    found["whole job"] = seconds_after(
        job, job.kill_all, lambda s: s.phase == "train", lambda s: s.rows_done
    )
    found["restore"] = checkpoint_seconds(job)[2][-1]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.rounds):
            rounds.append(round_of(Path(place), number))
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
