"""Runs the same job in several ways over several seeds, and tells what AUC each reached."""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from fleet_config.cpu import cpu_fields

ROOT = Path(__file__).resolve().parents[1]
FLEETPS = [sys.executable, "-c", "from fleetps.cli import main; main()"]
Aucs = dict[str, list[float]]


def ways(config: str, *sizes: tuple[int, int]) -> dict[str, list[str]]:
    """Commands: local, and one for each (servers, workers)."""
    commands = {"local": [sys.executable, str(ROOT / "train.py"), "--config", config]}
    for servers, workers in sizes:
        counts = ["--servers", str(servers), "--workers", str(workers)]
        name = f"{servers} servers, {workers} workers" if servers > 1 else "1 server, 1 worker"
        commands[name] = [*FLEETPS, "launch", "--config", config, *counts]
    return commands


def compare(
    commands: Mapping[str, Sequence[str]], seeds: int, output: str, settings: Mapping[str, object]
) -> Aucs:
    """Test AUC after the last epoch; every seed runs each way once, in turn."""
    found: Aucs = {name: [] for name in commands}
    for seed in range(1, seeds + 1):
        for name, command in commands.items():
            values = {**settings, "job.name": "auc", "job.output": output, "job.seed": seed}
            run([*command, *(f"--set={key}={value}" for key, value in values.items())])
            result = json.loads((Path(output) / "auc" / "result.json").read_text())
            found[name].append(float(result["history"][-1]["auc"]))
            print(f"seed {seed}: {name}: {found[name][-1]:.4f}", flush=True)
    return found


def run(command: Sequence[str]) -> None:
    """Run a command of ours; ends the benchmark with its last words if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")


def table(title: str, command: str, aucs: Aucs, note: str) -> str:
    """A report in Markdown."""
    base = statistics.mean(next(iter(aucs.values())))
    lines = [
        f"# {title}",
        "",
        f"Command: `{command}`, {datetime.date.today().isoformat()}, {machine()}.",
        "",
        "| | test AUC, mean | min | max | standard deviation | mean less local |",
        "|---|---|---|---|---|---|",
    ]
    for name, values in aucs.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.mean(values)
        figures = (f"{x:.4f}" for x in (mean, min(values), max(values), spread))
        lines.append(f"| {name} | {' | '.join(figures)} | {mean - base:+.4f} |")
    return "\n".join([*lines, "", note, ""])


def machine() -> str:
    """What it ran on."""
    model = cpu_fields().get("model name", platform.machine())
    return f"{model}, {psutil.cpu_count()} cores, Python {platform.python_version()}"


def finish(report: str, file: str, *, write: bool) -> None:
    """Show a report, and keep it if asked to."""
    print(report)
    if write:
        (ROOT / "benchmarks" / "results" / file).write_text(report)
