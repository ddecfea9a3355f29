"""What the step hook costs: passes with it, with an empty function, and without, in turn.

    python benchmarks/step_hook.py [--rounds 100] [--write]

One server and one worker with two threads, batch 512, rows in memory. Two processes side by side
differ by more than the hook costs, so one worker has all three programs. Results go to
benchmarks/results/step_hook.md with --write.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import tempfile
from pathlib import Path

from auc import machine
from processes import run
from setups import Setup, make_data

RESULT = Path(__file__).parent / "results" / "step_hook.md"
ROWS = 100_000  # of a pass: short ones, as the machine's speed drifts
TURNS = ("the step hook", "an empty function", "nothing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    passes = len(TURNS) * options.rounds
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        setup = Setup("step hook in turn", hook="in turn")
        (found,) = run(setup, place / "run", make_data(place, ROWS), passes)
    seconds = [end - begin for begin, end in found["passes"]]
    report = table([seconds[turn :: len(TURNS)] for turn in range(len(TURNS))])
    print(report)
    if options.write:
        RESULT.write_text(report)


def table(seconds: list[list[float]]) -> str:
    """Of the seconds of each turn's passes, round by round."""
    rounds = len(seconds[0])
    lines = [
        "# What the step hook costs",
        "",
        f"Command: `python benchmarks/step_hook.py --rounds {rounds}`, {datetime.date.today()}.",
        f"Machine: {machine()}. DNN 256-128-64 on 26 ids x dim 16",
        f"and 13 dense features, {ROWS:,} rows in memory, one server, one worker with 2 threads,",
        "batch 512, plain SGD. More = seconds of a pass over those of the pass of the same round",
        "that calls nothing.",
        "",
        "| called after a batch | examples/s, median | more, mean | its error | more, median |",
        "|---|---|---|---|---|",
    ]
    for name, own in zip(TURNS, seconds, strict=True):
        more = [mine / nothing - 1 for mine, nothing in zip(own, seconds[-1], strict=True)]
        error = statistics.stdev(more) / len(more) ** 0.5
        figures = (statistics.mean(more), error, statistics.median(more))
        columns = " | ".join(f"{100 * figure:.1f} %" for figure in figures)
        lines.append(f"| {name} | {ROWS / statistics.median(own):,.0f} | {columns} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
