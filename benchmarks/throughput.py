"""Examples per second of training with the data in memory, configurations side by side.

    python benchmarks/throughput.py [--rounds 3] [--write]

`naive` is Paddle as its tutorials have it (server Adam, 26 slots, 1000 shards per table, no CPU
setting), with the same network, batch and data. Every round measures each configuration once, in
turn, so that a change of the machine's speed meets all of them; medians over the rounds are shown.
Results go to benchmarks/results/throughput.md with --write.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from auc import machine

from fleet_config.cpu import MKL_VARIABLE, mkl_setting
from fleet_config.job import Job
from fleetps.data.dataset import DATASET_FILE, load_dataset
from fleetps.data.pipe import read_blocks
from fleetps.data.synthetic import SyntheticSpec, make_synthetic
from fleetps.system.ports import free_ports
from fleetps.system.process import Child, end_all

ROOT = Path(__file__).resolve().parents[1]
ROWS = 200_000
SECONDS = 300.0


@dataclass(frozen=True)
class Setup:
    name: str
    servers: int
    workers: int
    threads: int
    naive: bool = False

    @property
    def local(self) -> bool:
        return self.servers == 0


SETUPS = (
    Setup("naive 1s1w, 2 threads", 1, 1, 2, naive=True),
    Setup("1s1w, 2 threads", 1, 1, 2),
    Setup("1s1w, 1 thread", 1, 1, 1),
    Setup("1s2w, 1 thread each", 1, 2, 1),
    Setup("2s2w, 1 thread each", 2, 2, 1),
    Setup("local, 1 thread", 0, 1, 1),
    Setup("local, 2 threads", 0, 1, 2),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--only", default="", help="setups whose name contains this")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    setups = [setup for setup in SETUPS if options.only in setup.name]
    with tempfile.TemporaryDirectory() as directory:
        ours, naive = make_data(Path(directory))
        rates: dict[str, list[float]] = {setup.name: [] for setup in setups}
        for number in range(options.rounds):
            for setup in setups:
                place = Path(directory) / f"round-{number}" / setup.name.replace(" ", "-")
                data = naive if setup.naive else ours
                rates[setup.name].append(measure(setup, place, data, options.batch))
                print(
                    f"round {number + 1}: {setup.name}: {rates[setup.name][-1]:,.0f} examples/s",
                    flush=True,
                )
    report = table(rates, options)
    print(report)
    if options.write:
        (ROOT / "benchmarks" / "results" / "throughput.md").write_text(report)


def make_data(directory: Path) -> tuple[Path, Path]:
    """The data set with its slots in one column, and the same rows with 26 columns."""
    ours, naive = directory / "data", directory / "data-26"
    make_synthetic(
        ours, SyntheticSpec(rows=ROWS, test_rows=1_000, shard_rows=ROWS // 4, compress="none")
    )
    dataset = load_dataset(ours)
    naive.mkdir()
    document = json.loads((ours / DATASET_FILE).read_text())
    label, dense, ids = document["columns"]
    single = [{**ids, "name": name, "width": 1, "features": [name]} for name in ids["features"]]
    document["columns"] = [label, dense, *single]
    for split in document["splits"].values():
        for shard in split["shards"]:
            file = naive / shard["file"]
            file.write_bytes(b"".join(apart(read_blocks(ours / shard["file"]))))
            shard["bytes"] = file.stat().st_size
    (naive / DATASET_FILE).write_text(json.dumps(document))
    assert load_dataset(naive).split("train").rows == dataset.split("train").rows
    return ours, naive


def apart(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """`... 26 a b c` -> `... 1 a 1 b 1 c`"""
    for line in b"".join(blocks).splitlines():
        words = line.split(b" ")
        ids = words[-26:]
        yield b" ".join([*words[:-27], *(b"1 " + word for word in ids)]) + b"\n"


def measure(setup: Setup, place: Path, data: Path, batch: int) -> float:
    """Examples per second: median of the passes, over all workers together."""
    place.mkdir(parents=True)
    endpoints = [f"127.0.0.1:{port}" for port in free_ports(setup.servers)]
    job = Job.model_validate(
        {
            "job": {"name": "throughput", "output": str(place)},
            "cluster": {
                "servers": max(1, setup.servers),
                "workers": setup.workers,
                "threads": setup.threads,
                "server_cores": 2,
            },
            "data": {"path": str(data), "batch_size": batch},
            "model": {"name": "dnn", "params": {"hidden": [256, 128, 64]}},
            "tables": {"embedding": {"dim": 16, "rule": {"name": "adam"}}},
        }
    )
    servers = [start(setup, job, place, "server", rank, endpoints) for rank in range(setup.servers)]
    workers = []
    try:
        for endpoint in endpoints:
            wait_for_server(endpoint)
        kind = "local" if setup.local else "worker"
        workers = [start(setup, job, place, kind, rank, endpoints) for rank in range(setup.workers)]
        for worker in workers:
            if worker.wait(SECONDS) != 0:
                sys.exit(f"{setup.name}: {worker.name} failed:\n{worker.log.read_text()[-3000:]}")
    finally:
        end_all([*workers, *servers], 1.0)
    results = [
        json.loads((place / f"{kind}-{rank}" / "passes.json").read_text())
        for rank in range(setup.workers)
    ]
    rows = sum(result["rows"] for result in results)
    passes = zip(*(result["passes"] for result in results), strict=True)
    return statistics.median(
        rows / (max(end for _, end in spans) - min(s for s, _ in spans)) for spans in passes
    )


def start(setup: Setup, job: Job, place: Path, kind: str, rank: int, endpoints: list[str]) -> Child:
    directory = place / f"{kind}-{rank}"
    directory.mkdir()
    (directory / "job.json").write_text(job.model_dump_json())
    settings = {
        "rank": rank,
        "workers": setup.workers,
        "naive": setup.naive,
        "local": setup.local,
        "passes": 3,
    }
    (directory / "child.json").write_text(json.dumps(settings))
    mkl = None if setup.naive else mkl_setting()
    host, port = endpoints[rank].split(":") if kind == "server" else ("127.0.0.1", "0")
    env = {
        **os.environ,
        **({MKL_VARIABLE: mkl} if mkl else {}),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
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


def table(rates: dict[str, list[float]], options: argparse.Namespace) -> str:
    command = f"python benchmarks/throughput.py --rounds {options.rounds} --batch {options.batch}"
    lines = [
        "# Training throughput",
        "",
        f"Command: `{command}`, {datetime.date.today().isoformat()}.",
        f"Machine: {machine()}, {MKL_VARIABLE}={mkl_setting()}.",
        f"Model: dnn 256-128-64 on 26 ids x dim 16 and 13 dense features, batch {options.batch},",
        f"{ROWS:,} rows in memory, Adam for dense and sparse parameters.",
        "",
        "| configuration | examples/s, median | min | max | of naive |",
        "|---|---|---|---|---|",
    ]
    naive = next((statistics.median(v) for k, v in rates.items() if k.startswith("naive")), None)
    for name, values in rates.items():
        median = statistics.median(values)
        ratio = f"{median / naive:.2f}" if naive else "-"
        lines.append(
            f"| {name} | {median:,.0f} | {min(values):,.0f} | {max(values):,.0f} | {ratio} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
