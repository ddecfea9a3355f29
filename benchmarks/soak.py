"""Half an hour of training with a random fault every 20 to 40 s.

    python benchmarks/soak.py [--minutes 30] [--seed 7] [--epochs 40] [--place DIR] [--write]

A job of 2 servers and 2 workers is trained twice: with faults until the minutes are over, then to
its end; and undisturbed. It must end well, every row must have been trained in every epoch, its
AUC must be that of the undisturbed one, no process may be left, and none may grow.
With --place the data and the undisturbed run are kept there and not made again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import auc
from faults import KINDS, Fault, plan
from launched import Job
from sampling import Sampler

RANKS = 2
ROWS, TEST_ROWS = 400_000, 50_000
AUC_GOAL = 0.003
# Of the mean of the first and the last third of a long life.
GROWTH_GOAL = 1.1
SETTINGS: dict[str, object] = {
    "cluster.servers": RANKS,
    "cluster.workers": RANKS,
    "cluster.deadlines.step": 20,
    "cluster.deadlines.barrier": 60,
    "cluster.deadlines.checkpoint": 60,
    "data.synthetic.rows": ROWS,
    "data.synthetic.test_rows": TEST_ROWS,
    "data.synthetic.distinct_ids": 2_600,  # so few that many epochs don't overfit
    "data.task_rows": 10_000,
    "model.params": "{hidden: [32, 16]}",
    "tables.embedding.dim": 9,
    "checkpoint.every": "{epochs: null, minutes: 1}",
}


@dataclass
class Outcome:
    """Of one fault: events until the next, and the longest time in which no row was handled."""

    fault: Fault
    events: list[str] = field(default_factory=list)
    pause: float = 0.0

    def __str__(self) -> str:
        what = f"{self.fault.at:6.0f} s: {self.fault.kind} ({self.fault.rank})"
        return f"{what}: {', '.join(self.events) or 'nothing'}; no row for {self.pause:.1f} s"


def undisturbed(place: Path, settings: dict[str, object]) -> dict[str, Any]:
    """Its result; trained only once."""
    job = Job(f"undisturbed-{settings['job.epochs']}", place, settings)
    result = job.run / "result.json"
    if not result.exists():
        print("training undisturbed", flush=True)
        job.start()
        code = job.exit_code(24 * 3600)
        if code != 0:
            sys.exit(f"the undisturbed job ended with exit code {code}; see {job.run}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def soak(job: Job, faults: Sequence[Fault], sampler: Sampler) -> list[Outcome]:
    """Do what is planned; those that come after the job's end are left out."""
    outcomes: list[Outcome] = []
    start = time.monotonic()
    for number, fault in enumerate(faults):
        _sleep_until(start + fault.at, job)
        if job.ended:
            break
        began = time.monotonic()
        KINDS[fault.kind](job, fault.rank)
        following = faults[number + 1].at if number + 1 < len(faults) else fault.at + 30
        _sleep_until(start + following, job)
        outcome = Outcome(fault, *sampler.between(began, time.monotonic()))
        outcomes.append(outcome)
        print(outcome, flush=True)
    return outcomes


def _sleep_until(when: float, job: Job) -> None:
    while time.monotonic() < when and not job.ended:
        time.sleep(min(0.5, max(0.0, when - time.monotonic())))


Verdict = dict[str, tuple[str, bool]]  # what was found, and whether it is right


def judge(code: int | None, job: Job, sampler: Sampler) -> Verdict:
    """What can be said without the undisturbed job."""
    left = job.processes()
    ended = "not in time" if code is None else str(code)
    verdict = {
        "exit code": (ended, code == 0),
        "processes left behind": (str(len(left)), not left),
    }
    for name, thirds in sampler.memory().items():
        text = (
            f"{thirds.first:.1f} MB, then {thirds.last:.1f} MB, over {thirds.minutes:.0f} minutes"
        )
        verdict[f"memory of {name}"] = (text, thirds.last <= GROWTH_GOAL * thirds.first)
    return verdict


def compared(job: Job, undisturbed: dict[str, Any]) -> Verdict:
    """Both have ended well."""
    result = json.loads((job.run / "result.json").read_text())
    sums = result["accounting"]
    adds_up = (
        all(epoch["train_rows"] == ROWS for epoch in result["history"])
        and len(result["history"]) == len(undisturbed["history"])
        and sums["leased"] == sums["done"] + sums["returned"]
        and sums["total"] == sums["done"]
        and sums["held"] == sums["waiting"] == sums["quarantined"] == 0
    )
    text = (
        f"{len(result['history'])} epochs of {ROWS:,} training rows; {sums['leased']:,} leased = "
        f"{sums['done']:,} done + {sums['returned']:,} returned; {sums['repeated']:,} repeated"
    )
    ours, theirs = (one["history"][-1]["auc"] for one in (result, undisturbed))
    return {
        "rows": (text, adds_up),
        "test AUC": (
            f"{ours:.4f}, undisturbed {theirs:.4f}",
            abs(ours - theirs) <= AUC_GOAL,
        ),
    }


def report(command: str, minutes: float, outcomes: list[Outcome], verdict: Verdict) -> str:
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.fault.kind].append(outcome)
    lines = [
        "# Soak",
        "",
        f"Command: `{command}`, {datetime.date.today().isoformat()}, {auc.machine()}.",
        "",
        f"{RANKS} servers, {RANKS} workers, {len(outcomes)} faults in {minutes:.0f} minutes.",
        "",
        "| | | |",
        "|---|---|---|",
        *(
            f"| {what} | {text} | {'right' if right else '**wrong**'} |"
            for what, (text, right) in verdict.items()
        ),
        "",
        "Memory: resident, medians of the first and the last third of the life of those that",
        "lived longest.",
        "",
        "| fault | times | longest time without a row, median | most |",
        "|---|---|---|---|",
    ]
    for kind, found in by_kind.items():
        pauses = [outcome.pause for outcome in found]
        lines.append(
            f"| {kind} | {len(found)} | {statistics.median(pauses):.1f} s | {max(pauses):.1f} s |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--every", type=float, nargs=2, default=(20, 40), metavar="SECONDS")
    parser.add_argument("--epochs", type=int, default=40, help="enough for the minutes")
    parser.add_argument("--place", type=Path, help="a directory that is kept")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/soak.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = (options.place or Path(temporary)).absolute()
        right = run(options, place)
    sys.exit(0 if right else 1)


def run(options: argparse.Namespace, place: Path) -> bool:
    faults = plan(options.seed, options.minutes * 60, tuple(options.every), RANKS)
    for fault in faults:
        print(f"{fault.at:6.0f} s: {fault.kind} ({fault.rank})")
    settings = {**SETTINGS, "data.path": place / "data", "job.epochs": options.epochs}
    job = Job("soak", place, settings)
    job.start()
    job.wait("the first checkpoint", lambda status: status.checkpoint.number >= 1)
    print("disturbed from now on", flush=True)
    start = time.monotonic()
    sampler = Sampler(job)
    with sampler.running():
        outcomes = soak(job, faults, sampler)
        minutes = (time.monotonic() - start) / 60
        code = job.exit_code(options.minutes * 60)
    if code is None:
        job.end()
    verdict = judge(code, job, sampler)
    if code == 0:
        verdict |= compared(job, undisturbed(place, settings))
    command = (
        f"python benchmarks/soak.py --minutes {options.minutes:g} --seed {options.seed} "
        f"--epochs {options.epochs}"
    )
    auc.finish(report(command, minutes, outcomes, verdict), "soak.md", write=options.write)
    return all(right for _, right in verdict.values())


if __name__ == "__main__":
    main()
