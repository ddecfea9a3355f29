"""What the throughput benchmark measures, and the data that it needs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleetps.data.dataset import DATASET_FILE, load_dataset
from fleetps.data.pipe import read_blocks
from fleetps.data.synthetic import SyntheticSpec, make_synthetic

ROWS = 400_000  # of a pass; the product flushes once per epoch, not per call of the trainer
SHARDS = 4
SLOTS, DENSE = 26, 13
VOCABULARY = 1 << 19  # rows of TensorFlow's table, 20 times the distinct ids; `local` has as many


@dataclass(frozen=True)
class Setup:
    """One configuration.

    Attributes:
        optimizer: sgd = SGD for dense parameters and the naive rule for tables; adam = both Adam.
        pinned: the server on core 0, the worker or local process on core 1.
        reading: each task is read from zstd shards, shuffled, while the one before trains.
        hook: in turn = of three passes one has the step hook, one calls an empty function in its
            place, one calls nothing.
        kind: fleetps, naive (Paddle as its tutorials have it) or tensorflow.
    """

    name: str
    servers: int = 1
    workers: int = 1
    threads: int = 2
    batch: int = 512
    optimizer: str = "sgd"
    mode: str = "async"
    pinned: bool = False
    reading: bool = False
    hook: str = "always"
    kind: str = "fleetps"

    @property
    def local(self) -> bool:
        return self.servers == 0


SETUPS = (
    Setup("1s1w, batch 512"),
    Setup("TensorFlow 1s1w, batch 512", kind="tensorflow"),
    Setup("1s1w, batch 2048", batch=2048),
    Setup("TensorFlow 1s1w, batch 2048", batch=2048, kind="tensorflow"),
    Setup("1s1w, Adam", optimizer="adam"),
    Setup("naive 1s1w, Adam", optimizer="adam", kind="naive"),
    Setup("1s1w, a core each", pinned=True),
    Setup("local, one core", servers=0, threads=1, pinned=True),
    Setup("local", servers=0),
    Setup("local, batch 2048", servers=0, batch=2048),
    Setup("1s2w, async", workers=2, threads=1),
    Setup("1s2w, sync", workers=2, threads=1, mode="sync"),
    Setup("1s1w, reading zstd", reading=True),
    Setup("1s1w, 1 thread", threads=1),
    Setup("1s1w, 1 thread, reading zstd", threads=1, reading=True),
)

# (what, numerator, denominator, goal)
GOALS = (
    ("TensorFlow, batch 512", "1s1w, batch 512", "TensorFlow 1s1w, batch 512", 1.6),
    ("TensorFlow, batch 2048", "1s1w, batch 2048", "TensorFlow 1s1w, batch 2048", 1.3),
    ("local on one core", "1s1w, a core each", "local, one core", 0.8),
    ("sync of async, 2 workers", "1s2w, sync", "1s2w, async", 0.7),
    ("zstd shards of memory", "1s1w, reading zstd", "1s1w, batch 512", 0.95),
    ("zstd of memory, 1 thread", "1s1w, 1 thread, reading zstd", "1s1w, 1 thread", 0.95),
)


@dataclass(frozen=True)
class Data:
    """The same rows four times.

    Attributes:
        plain: data set for memory.
        packed: data set in zstd shards.
        apart: data set with 26 columns of one slot.
        records: for TensorFlow: label and dense float32, then 26 ids modulo VOCABULARY int32.
    """

    plain: Path
    packed: Path
    apart: Path
    records: Path


def make_data(directory: Path, rows: int = ROWS) -> Data:
    data = Data(*(directory / name for name in ("plain", "packed", "apart", "rows.bin")))
    common = {"rows": rows, "test_rows": 1_000, "shard_rows": rows // SHARDS}
    make_synthetic(data.plain, SyntheticSpec(**common, compress="none"))
    make_synthetic(data.packed, SyntheticSpec(**common, compress="zstd"))
    _write_apart(data.plain, data.apart)
    dataset = load_dataset(data.plain)
    with data.records.open("wb") as file:
        for shard in dataset.split("train").shards:
            file.write(_records(dataset.shard_path(shard)))
    return data


def _write_apart(plain: Path, apart: Path) -> None:
    apart.mkdir()
    document = json.loads((plain / DATASET_FILE).read_text())
    label, dense, ids = document["columns"]
    single = [{**ids, "name": name, "width": 1, "features": [name]} for name in ids["features"]]
    document["columns"] = [label, dense, *single]
    for split in document["splits"].values():
        for shard in split["shards"]:
            file = apart / shard["file"]
            file.write_bytes(b"".join(_lines_apart(read_blocks(plain / shard["file"]))))
            shard["bytes"] = file.stat().st_size
    (apart / DATASET_FILE).write_text(json.dumps(document))


def _lines_apart(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """`... 26 a b c` -> `... 1 a 1 b 1 c`"""
    for line in b"".join(blocks).splitlines():
        words = line.split(b" ")
        ids = words[-SLOTS:]
        yield b" ".join([*words[: -SLOTS - 1], *(b"1 " + word for word in ids)]) + b"\n"


def _records(shard: Path) -> bytes:
    """`1 label 13 dense.. 26 ids..` -> fixed-length records."""
    words = np.array([line.split() for line in b"".join(read_blocks(shard)).splitlines()])
    floats = words[:, [1, *range(3, 3 + DENSE)]].astype(np.float32)
    ids = (words[:, -SLOTS:].astype(np.uint64) % VOCABULARY).astype(np.int32)
    return np.hstack([floats.view(np.int32), ids]).tobytes()
