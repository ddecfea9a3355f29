"""A small data set of which every gradient is known, and jobs that train on it."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleet_config.job import Job

BATCH, STEPS = 8, 20
TABLE_RATE = 0.1
RANGE = 1e-6  # new values are drawn from [-RANGE, RANGE]: as good as 0
PADDING = 2**64 - 1


@dataclass
class Push:
    """What a batch has for an id; the gradient is that of a value of weight 1."""

    gradient: float = 0.0
    show: int = 0
    click: int = 0


class Data:
    """Rows with two dense features and two ids, some of them repeated within a row and a batch.

    With `tags` a column of one to three more ids per row. With `padding` some ids are the padding
    id. Some ids are seen late for the first time.
    """

    def __init__(
        self, *, tags: bool = False, padding: bool = False, rows: int = BATCH * STEPS
    ) -> None:
        random = np.random.default_rng(7)
        self.labels = random.integers(0, 2, rows)
        self.dense = random.normal(size=(rows, 2)).round(3)
        self.ids = [list(pair) for pair in random.integers(100, 110, (rows, 2))]
        self.tags = [list(random.integers(100, 110, random.integers(1, 4))) for _ in range(rows)]
        if not tags:
            self.tags = []
        if padding:
            for row in range(0, rows, 7):
                self.ids[row][row % 2] = PADDING
            for row in range(rows // 2, rows, 5):
                self.ids[row][0] = 110 + row // 20

    def write(self, path: Path) -> Path:
        path.mkdir(parents=True)
        lines = [self._line(row) for row in range(len(self.labels))]
        splits = {}
        for split in ("train", "test"):
            text = "".join(lines).encode()
            (path / f"{split}.txt").write_bytes(text)
            digest = hashlib.sha256(text).hexdigest()
            shard = {
                "file": f"{split}.txt",
                "rows": len(lines),
                "bytes": len(text),
                "sha256": digest,
            }
            splits[split] = {"rows": len(lines), "shards": [shard]}
        columns = [
            {"name": "label", "kind": "label", "width": 1, "features": ["label"]},
            {"name": "dense", "kind": "dense", "width": 2, "features": ["x", "y"]},
            {"name": "ids", "kind": "sparse", "width": 2, "features": ["a", "b"]},
        ]
        if self.tags:
            columns.append({"name": "tags", "kind": "sparse", "width": None, "features": ["t"]})
        document = {
            "format": "fleetps-dataset",
            "version": 1,
            "columns": columns,
            "splits": splits,
            "distinct_ids": 10,
            "source": {},
        }
        (path / "dataset.json").write_text(json.dumps(document))
        return path

    def _line(self, row: int) -> str:
        parts = [[self.labels[row]], self.dense[row], self.ids[row]]
        parts += [self.tags[row]] if self.tags else []
        return " ".join(f"{len(part)} {' '.join(map(str, part))}" for part in parts) + "\n"

    def dense_gradients(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Per step: of the mean loss, for w [2, 1] and b [1]."""
        push = 0.5 - self.labels
        steps = [slice(start, start + BATCH) for start in range(0, len(push), BATCH)]
        return [
            ((push[s, None] * self.dense[s]).mean(axis=0)[:, None], np.array([push[s].mean()]))
            for s in steps
        ]

    def slots(self, row: int) -> list[list[int]]:
        """The ids of each slot of a row."""
        tags = [[int(key) for key in self.tags[row]]] if self.tags else []
        return [[int(key)] for key in self.ids[row]] + tags

    def batches(self) -> Iterator[tuple[range, dict[int, Push]]]:
        """Rows of a batch, and what is pushed of it for each id."""
        for start in range(0, len(self.labels), BATCH):
            rows = range(start, start + BATCH)
            pushes: dict[int, Push] = {}
            for row in rows:
                for key in itertools.chain.from_iterable(self.slots(row)):
                    if key != PADDING:
                        push = pushes.setdefault(key, Push())
                        push.gradient += 0.5 - self.labels[row]
                        push.show += 1
                        push.click += int(self.labels[row])
            yield rows, pushes


def known_job(tmp_path: Path, data: Data, **sections: Any) -> Job:
    """Trains one epoch in the order of the data, without evaluation."""
    rule = {"name": "naive", "learning_rate": TABLE_RATE, "initial_range": RANGE}
    return Job.model_validate(
        {
            "job": {"name": "known", "output": str(tmp_path / "runs")},
            "data": {
                "path": str(data.write(tmp_path / "data")),
                "batch_size": BATCH,
                "shuffle": False,
            },
            "model": {"name": "known_gradient"},
            "tables": {"embedding": {"dim": 3, "rule": rule}},
            "evaluate": {"every_epochs": 0},
            **sections,
        }
    )
