"""How fast `fleetps data convert criteo` is, and how much memory it takes.

    python benchmarks/convert.py [--rows 2000000] [--runs 3]

Writes a raw file with the shape of Criteo's Kaggle set (numbers with a long tail, missing values,
26 categories with up to 10 million values each), then converts it in a process of its own: plain,
gzip and zstd input, with and without the extra passes of --split time and --min-count. The results
go to benchmarks/results/convert.json and convert.md. A run during which other processes used the
machine is repeated a few times; what they used is part of the result. It waits for a quiet moment
before each run (at most --patience seconds).
"""

import argparse
import gzip
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

RESULTS = Path(__file__).parent / "results"
CHUNK = 50_000
# About as many distinct values as C1-C26 have in the Kaggle set.
CARDINALITIES = [
    1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194,
    27, 14_992, 5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
]  # fmt: skip
MISSING = 0.12
OTHERS_LIMIT = 0.05
ATTEMPTS = 3


def raw_rows(rows: int, seed: int = 1) -> Iterator[bytes]:
    """Yield Criteo-like lines."""
    for number in range(-(-rows // CHUNK)):
        random = np.random.default_rng([seed, number])
        count = min(CHUNK, rows - number * CHUNK)
        columns = [pa.array(random.integers(0, 2, count)).cast(pa.string())]
        for _ in range(13):
            values = np.exp(random.normal(2.0, 2.0, count)).astype(np.int64)
            columns.append(_with_gaps(pa.array(values).cast(pa.string()), random))
        for column, size in enumerate(CARDINALITIES):
            # Log-uniform ranks: a zipf distribution with exponent 1.
            ranks = np.floor(size ** random.random(count)).astype(np.uint64)
            hashed = (ranks * np.uint64(2_654_435_761) + np.uint64(column)) % np.uint64(1 << 32)
            digits = np.char.mod("%08x", hashed.astype(np.int64)).tolist()
            columns.append(_with_gaps(pa.array(digits), random))
        lines = pc.binary_join_element_wise(*columns, "\t").to_pylist()
        yield "".join(f"{line}\n" for line in lines).encode()


def _with_gaps(texts: pa.Array, random: np.random.Generator) -> pa.Array:
    return pc.if_else(pa.array(random.random(len(texts)) < MISSING), "", texts)


def write_inputs(directory: Path, rows: int) -> dict[str, Path]:
    """Write the same rows plain, as gzip and as zstd."""
    files = {
        name: directory / f"train.txt{end}"
        for name, end in {"plain": "", "gzip": ".gz", "zstd": ".zst"}.items()
    }
    with (
        files["plain"].open("wb") as plain,
        gzip.open(files["gzip"], "wb", compresslevel=6) as zipped,
        zstandard.open(files["zstd"], "wb") as packed,
    ):
        for text in raw_rows(rows):
            for file in (plain, zipped, packed):
                file.write(text)
    return files


def measure(source: Path, rows: int, patience: float, *options: str) -> dict[str, Any]:
    """Convert, again where others were too busy; returns the run they disturbed least."""
    runs: list[dict[str, Any]] = []
    while not runs or (runs[-1]["others"] > OTHERS_LIMIT and len(runs) < ATTEMPTS):
        wait_for_quiet(patience)
        runs.append(convert(source, rows, *options))
    return min(runs, key=lambda run: run["others"])


def wait_for_quiet(patience: float) -> None:
    """Wait until the machine is idle, but not for ever."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(2.0)
        if busy_seconds() - before < 2.0 * OTHERS_LIMIT:
            return


def busy_seconds() -> float:
    """Return the CPU seconds that all processes have used since the machine started."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def convert(source: Path, rows: int, *options: str) -> dict[str, Any]:
    """Convert in a new process, as a user would."""
    out = source.with_name("out")
    shutil.rmtree(out, ignore_errors=True)
    command = ["data", "convert", "criteo", source.name, out.name, *options]
    start, busy = time.perf_counter(), busy_seconds()
    child = subprocess.Popen(
        [sys.executable, "-c", "from fleetps.cli import main; main()", *command],
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds, busy = time.perf_counter() - start, busy_seconds() - busy
    cpu_seconds = usage.ru_utime + usage.ru_stime
    if status:
        raise SystemExit(f"fleetps {' '.join(command)}: failed")
    written = sum(file.stat().st_size for file in out.iterdir())
    shutil.rmtree(out)
    return {
        "command": f"fleetps {' '.join(command)}",
        "rows": rows,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "others": max(0.0, round((busy - cpu_seconds) / seconds / (os.cpu_count() or 1), 3)),
        "rows_per_second": round(rows / seconds),
        "peak_memory_mb": round(usage.ru_maxrss / 1024),
        "bytes_per_row": round(written / rows),
    }


def median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run of median speed."""
    return sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
        "zstandard": zstandard.__version__,
    }


def report(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    head = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    lines = [
        "# Speed of `fleetps data convert criteo`",
        "",
        f"`{results['command']}` on {head}.",
        f"Medians of {results['runs']} runs. Start of the process, compression and fsync included.",
        f"The raw rows have Criteo's shape and {results['raw_bytes_per_row']} bytes each.",
        "",
        "Others: the share of the machine that other processes used meanwhile.",
        "",
        "| command | rows | seconds | CPU seconds | rows/s | peak memory | bytes/row | others |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in results["conversions"]:
        lines.append(
            f"| `{run['command']}` | {run['rows']:,} | {run['seconds']} | {run['cpu_seconds']} "
            f"| {run['rows_per_second']:,} | {run['peak_memory_mb']} MB | {run['bytes_per_row']} "
            f"| {run['others']:.0%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--patience", type=float, default=60.0)
    arguments = parser.parse_args()
    rows = arguments.rows
    with tempfile.TemporaryDirectory() as scratch:
        small, large = Path(scratch, "small"), Path(scratch, "large")
        small.mkdir()
        large.mkdir()
        quarter = write_inputs(small, rows // 4)
        files = write_inputs(large, rows)
        # The quarter shows that memory does not grow with the file.
        cases: list[tuple[Path, int, list[str]]] = [
            (quarter["plain"], rows // 4, []),
            *((file, rows, []) for file in files.values()),
            (files["plain"], rows, ["--split", "random"]),
            (files["plain"], rows, ["--bucketize"]),
            (files["plain"], rows, ["--min-count", "3"]),
        ]
        results = {
            "command": f"python benchmarks/convert.py --rows {rows} --runs {arguments.runs}",
            "machine": machine(),
            "runs": arguments.runs,
            "raw_bytes_per_row": round(files["plain"].stat().st_size / rows),
            "conversions": [
                median(
                    [
                        measure(file, count, arguments.patience, *options)
                        for _ in range(arguments.runs)
                    ]
                )
                for file, count, options in cases
            ],
        }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "convert.json").write_text(json.dumps(results, indent=1) + "\n")
    text = report(results)
    (RESULTS / "convert.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
