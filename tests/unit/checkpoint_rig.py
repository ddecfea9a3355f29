"""Checkpoints of a small job, in the text that docs/checkpoints.md describes, made without an
engine."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fleet_config.job import Job
from fleetps.checkpoint.finish import Saved, finish
from fleetps.checkpoint.store import Checkpoint, Checkpoints
from fleetps.data.dataset import Column, Dataset, Shard, Split

Text = dict[int, str]  # id -> its line

COLUMNS = (
    Column("label", "label", 1, ("click",)),
    Column("dense", "dense", 2, ("price", "age")),
    Column("ids", "sparse", 2, ("user", "item")),
)
ROWS = 40
# How many numbers a rule keeps beside the first value, and beside `n` factors.
STATE: dict[str, Callable[[int], tuple[int, int]]] = {
    "naive": lambda _: (0, 0),
    "adagrad": lambda _: (1, 1),
    "std_adagrad": lambda n: (1, n),
    "adam": lambda n: (4, 2 * n + 2),
    "shared_adam": lambda _: (4, 4),
}


def job_of(directory: Path, **sections: Any) -> Job:
    """Two servers, a table `embedding` of dim 3 with 4 shards, a table `wide` of dim 5 with 2."""
    tables = {
        "embedding": {"dim": 3, "shards": 4},
        "wide": {"dim": 5, "shards": 2, "rule": {"name": "adam"}},
    }
    return Job.model_validate(
        {
            "job": {"name": "small", "output": str(directory / "runs"), "epochs": 3},
            "cluster": {"servers": 2},
            "data": {"path": str(directory / "data")},
            "model": {"name": "dnn", "params": {"hidden": [4]}},
            "tables": tables,
            **sections,
        }
    )


def data_of(job: Job) -> Dataset:
    split = Split(7, (Shard("train-00000.txt", 7, 100, "ab" * 32),))
    return Dataset(job.data.path, COLUMNS, {"train": split}, 9, {})


def lines_of(job: Job, table: str, seed: int = 1) -> Text:
    """ROWS random rows; every fifth has no factors."""
    random = np.random.default_rng(seed)
    dim = job.tables[table].dim
    rule = "naive" if "geo" in job.mode_names else job.tables[table].rule.name
    first_state, state = STATE[rule](dim - 1)
    found: Text = {}
    for number, key in enumerate(random.integers(0, 1 << 62, ROWS)):
        size = 1 + first_state + (dim - 1 + state if number % 5 else 0)
        values = " ".join(f"{value:.6g}" for value in random.normal(size=size))
        found[int(key)] = f"{key} 0 0 {number / 10:.6g} {number} {number // 3} {values}\n"
    return found


def write_table(directory: Path, lines: Text, servers: int, shards: int) -> None:
    directory.mkdir(parents=True)
    for shard in range(shards):
        text = "".join(line for key, line in lines.items() if key % shards == shard)
        server = shard // (shards // servers)
        file = directory / f"part-{server:03}-{shard:05}.gz"
        file.write_bytes(gzip.compress(text.encode()))


def read_table(directory: Path, shards: int) -> Text:
    """By id; each must be in the file of its shard."""
    found: Text = {}
    for file in sorted(directory.iterdir()):
        shard = int(file.name.removesuffix(".gz").split("-")[2])
        for line in gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True):
            key = int(line.split()[0])
            assert key % shards == shard
            found[key] = line
    return found


def write_partial(
    job: Job, number: int, seed: int = 1, tables: Mapping[str, Text] | None = None
) -> tuple[Path, Saved]:
    """What the engine and two workers leave, and what the one that saved knows."""
    partial = Checkpoints(job.checkpoint_dir).begin(number)
    rows = {}
    for table_id, name in enumerate(job.tables):
        lines = tables[name] if tables else lines_of(job, name, seed)
        rows[name] = len(lines)
        write_table(
            partial / f"tables/{table_id:03}", lines, job.cluster.servers, job.table_shards(name)
        )
    dense = partial / f"tables/{len(rows):03}"
    dense.mkdir()
    for server in range(job.cluster.servers):
        (dense / f"part-{server:03}.gz").write_bytes(gzip.compress(b"0.5\n"))
    random = np.random.default_rng(seed)
    np.savez(partial / "dense.npz", **dense_of(seed))
    for rank in (0, 2):
        np.savez(partial / f"optimizer-{rank}.npz", moment=random.normal(size=3))
    saved = Saved(
        number=number,
        generation=1,
        ranks=(0, 2),
        ids={name: table_id for table_id, name in enumerate(job.tables)},
        rows=rows,
        progress={"epoch": number - 1, "rows": 7 * number},
        paddle="2.6.2",
    )
    return partial, saved


def dense_of(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "w": random.normal(size=(2, 3)).astype(np.float32),
        "b": np.full(3, 0.5, np.float32),
    }


def make(
    job: Job, number: int = 1, seed: int = 1, tables: Mapping[str, Text] | None = None
) -> Checkpoint:
    partial, saved = write_partial(job, number, seed, tables)
    return finish(partial, job, data_of(job), saved)
