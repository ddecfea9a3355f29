"""Examples per second of training, configurations and peers side by side.

    python benchmarks/throughput.py [--rounds 5] [--only TEXT ...] [--write]

Every round measures each configuration of `setups.py` once, in turn, so that a change of the
machine's speed meets all of them; medians over the rounds are shown. TensorFlow gets a virtual
environment of its own in benchmarks/peers/.venv. Results go to benchmarks/results/throughput.md
with --write.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import tempfile
from pathlib import Path

import peer
import processes
from auc import machine
from setups import GOALS, ROWS, SETUPS, Data, Setup, make_data

from fleet_config.cpu import MKL_VARIABLE, mkl_setting

RESULT = Path(__file__).parent / "results" / "throughput.md"
Rates = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", nargs="*", default=[""], help="setups whose name has one of these"
    )
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    setups = [setup for setup in SETUPS if any(text in setup.name for text in options.only)]
    if any(setup.kind == "tensorflow" for setup in setups):
        peer.prepare()
    with tempfile.TemporaryDirectory() as directory:
        rates = run(setups, options.rounds, Path(directory))
    report = table(rates, options.rounds)
    print(report)
    if options.write:
        RESULT.write_text(report)


def run(setups: list[Setup], rounds: int, directory: Path) -> Rates:
    data = make_data(directory)
    rates: Rates = {setup.name: [] for setup in setups}
    for number in range(1, rounds + 1):
        for setup in setups:
            place = directory / f"round-{number}" / setup.name.replace(" ", "-")
            rates[setup.name].append(measure(setup, place, data))
            rate = rates[setup.name][-1]
            print(f"round {number}: {setup.name}: {rate:,.0f}", file=sys.stderr, flush=True)
    return rates


def measure(setup: Setup, place: Path, data: Data) -> float:
    if setup.kind == "tensorflow":
        return peer.measure(setup, data)
    return processes.measure(setup, place, data)


def table(rates: Rates, rounds: int) -> str:
    today = datetime.date.today().isoformat()
    lines = [
        "# Training throughput",
        "",
        f"Command: `python benchmarks/throughput.py --rounds {rounds}`, {today}.",
        f"Machine: {machine()}, {MKL_VARIABLE}={mkl_setting()}.",
        "Model: DNN 256-128-64 on 26 ids x dim 16 and 13 dense features,",
        f"{ROWS:,} rows. Where nothing else is said: rows in memory, batch 512, the worker has",
        "2 threads, plain SGD for dense and sparse parameters.",
        "",
        "| configuration | examples/s, median | min | max |",
        "|---|---|---|---|",
    ]
    for name, values in rates.items():
        figures = (f"{x:,.0f}" for x in (statistics.median(values), min(values), max(values)))
        lines.append(f"| {name} | {' | '.join(figures)} |")
    lines += ["", "| ratio | measured | goal |", "|---|---|---|"]
    for what, above, below, goal in GOALS:
        if above in rates and below in rates:
            ratio = statistics.median(rates[above]) / statistics.median(rates[below])
            lines.append(f"| {what} | {ratio:.2f} | {goal} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
