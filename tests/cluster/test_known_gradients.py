"""Parameters after K steps of known gradients, against numpy: dense optimizers, table rules."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from probe_job import Left, run_local_probe, run_probe

from fleet_config.job import Job

pytestmark = pytest.mark.cluster

BATCH, STEPS = 8, 20
RATE = 0.01
TABLE_RATE = 0.1
RANGE = 1e-6  # new values are drawn from [-RANGE, RANGE]: as good as 0


class Data:
    """Rows with two dense features and two ids, some of them repeated within a row and a batch.

    With `tags` a column of one to three more ids per row.
    """

    def __init__(self, *, tags: bool = False) -> None:
        random = np.random.default_rng(7)
        rows = BATCH * STEPS
        self.labels = random.integers(0, 2, rows)
        self.dense = random.normal(size=(rows, 2)).round(3)
        self.ids = [list(pair) for pair in random.integers(100, 110, (rows, 2))]
        self.tags = [list(random.integers(100, 110, random.integers(1, 4))) for _ in range(rows)]
        if not tags:
            self.tags = []

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

    def pushes(self) -> dict[int, list[tuple[float, int]]]:
        """Per id: (sum of gradients of one value, occurrences) of each batch that has it."""
        found: dict[int, list[tuple[float, int]]] = {}
        for start in range(0, len(self.labels), BATCH):
            batch: dict[int, list[float]] = {}
            for row in range(start, start + BATCH):
                for key in self.ids[row] + (self.tags[row] if self.tags else []):
                    batch.setdefault(int(key), []).append(0.5 - self.labels[row])
            for key, gradients in batch.items():
                found.setdefault(key, []).append((sum(gradients), len(gradients)))
        return found


def train(tmp_path: Path, port: int, *, tags: bool = False, **sections: Any) -> tuple[Data, Left]:
    data = Data(tags=tags)
    job = known_job(tmp_path, data, **sections)
    return data, run_probe(job, tmp_path, port, step_by_step=True)


def known_job(tmp_path: Path, data: Data, **sections: Any) -> Job:
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


OPTIMIZERS = {
    "sgd": ({"name": "sgd"}, reference.sgd),
    "momentum": ({"name": "momentum", "momentum": 0.8}, lambda: reference.momentum(0.8)),
    "adagrad": ({"name": "adagrad", "epsilon": 1e-4}, lambda: reference.adagrad(1e-4)),
    "adam": (
        {"name": "adam", "beta1": 0.7, "beta2": 0.95, "epsilon": 1e-6},
        lambda: reference.adam(0.7, 0.95, 1e-6),
    ),
    "adamw": (
        # A pull may bring back a parameter that lacks the last steps, so the decay is not exact.
        {"name": "adamw", "weight_decay": 0.02},
        lambda: reference.adam(0.9, 0.999, 1e-8, decay=0.02),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense_optimizer(name: str, tmp_path: Path, free_port: int) -> None:
    settings, make = OPTIMIZERS[name]
    data, left = train(tmp_path, free_port, optimizer={**settings, "learning_rate": RATE})
    steps = {"w": make(), "b": make()}
    expected = left.dense("start")
    for t, gradients in enumerate(data.dense_gradients(), start=1):
        for key, gradient in zip(("w", "b"), gradients, strict=True):
            expected[key] = steps[key](expected[key], gradient, t, RATE)
    assert_moved_alike(left, expected)


def test_schedule_and_clipping(tmp_path: Path, free_port: int) -> None:
    schedule = {"name": "cosine", "warmup_steps": 4, "min_factor": 0.1}
    settings = {"name": "sgd", "learning_rate": RATE, "clip_norm": 0.2, "schedule": schedule}
    data, left = train(tmp_path, free_port, optimizer=settings)
    expected = left.dense("start")
    for t, gradients in enumerate(data.dense_gradients()):
        part = (t - 4) / (STEPS - 4)
        decayed = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * part))
        rate = RATE * ((t + 1) / 4 if t < 4 else decayed)
        for key, gradient in zip(("w", "b"), reference.clipped(gradients, 0.2), strict=True):
            expected[key] = expected[key] - rate * gradient
    assert_moved_alike(left, expected)


def assert_moved_alike(left: Left, expected: dict[str, np.ndarray]) -> None:
    start, end = left.dense("start"), left.dense("end")
    for key in ("w", "b"):
        moved, wanted = end[key] - start[key], expected[key] - start[key]
        assert np.abs(wanted).min() > 1e-4, "the test must move every parameter"
        np.testing.assert_allclose(moved, wanted, rtol=2e-3, atol=2e-6)


@pytest.mark.parametrize("tags", [False, True], ids=["one id per slot", "several ids per slot"])
def test_naive_rule(tmp_path: Path, free_port: int, tags: bool) -> None:
    data, left = train(tmp_path, free_port, tags=tags)
    rows = left.rows("end")
    pushes = data.pushes()
    assert sorted(rows) == sorted(pushes)
    for key, row in rows.items():
        first, rest = row[4], row[5:]
        gradients = [gradient for gradient, _ in pushes[key]]
        assert first == pytest.approx(-TABLE_RATE * sum(gradients), abs=1e-5)
        # The other values are drawn at an id's first push, whose gradient they don't get.
        for value in rest:
            assert value == pytest.approx(-TABLE_RATE * sum(gradients[1:]), abs=1e-5)
        assert row[2] == sum(count for _, count in pushes[key]), "show counts the occurrences"


def test_adagrad_rule(tmp_path: Path, free_port: int) -> None:
    rule = {
        "name": "adagrad",
        "learning_rate": TABLE_RATE,
        "initial_range": RANGE,
        "initial_g2sum": 0.5,
    }
    data, left = train(tmp_path, free_port, tables={"embedding": {"dim": 3, "rule": rule}})
    for key, row in left.rows("end").items():
        first, first_sum, *rest, rest_sum = row[4:]
        pushes = [gradient / count for gradient, count in data.pushes()[key]]
        value, total = _adagrad(pushes)
        assert (first, first_sum) == (
            pytest.approx(value, abs=1e-5),
            pytest.approx(total, rel=1e-4),
        )
        value, total = _adagrad(pushes[1:])
        assert rest == pytest.approx([value, value], abs=1e-5)
        assert rest_sum == pytest.approx(total, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("tags", [False, True], ids=["one id per slot", "several ids per slot"])
@pytest.mark.parametrize("name", ["naive", "adagrad", "adam"])
def test_local_rules(name: str, tags: bool, tmp_path: Path) -> None:
    """The same rules without servers; there no value of a new row misses its first gradient."""
    own = {
        "naive": {},
        "adagrad": {"initial_g2sum": 0.5},
        "adam": {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3},
    }
    rule = {"name": name, "learning_rate": TABLE_RATE, "initial_range": RANGE, **own[name]}
    data = Data(tags=tags)
    job = known_job(tmp_path, data, tables={"embedding": {"dim": 3, "rule": rule}})
    values = run_local_probe(job, tmp_path).dense("end")["embedding"]
    for key, pushes in data.pushes().items():
        gradients = [gradient for gradient, _ in pushes]
        expected = {
            "naive": -TABLE_RATE * sum(gradients),
            "adagrad": _adagrad([gradient / count for gradient, count in pushes])[0],
            "adam": _adam(gradients),
        }
        assert values[key % len(values)] == pytest.approx([expected[name]] * 3, abs=2e-5)


def _adagrad(gradients: list[float]) -> tuple[float, float]:
    value = total = 0.0
    for gradient in gradients:
        value -= TABLE_RATE * gradient * math.sqrt(0.5 / (0.5 + total))
        total += gradient**2
    return value, total


def test_adam_rule(tmp_path: Path, free_port: int) -> None:
    rule = {
        "name": "adam",
        "learning_rate": TABLE_RATE,
        "initial_range": RANGE,
        "beta1": 0.8,
        "beta2": 0.9,
        "epsilon": 1e-3,
    }
    data, left = train(tmp_path, free_port, tables={"embedding": {"dim": 3, "rule": rule}})
    for key, row in left.rows("end").items():
        # first value and its m, v, beta1^t, beta2^t; then the other two values
        first, others = row[4], row[9:11]
        gradients = [gradient for gradient, _ in data.pushes()[key]]
        assert first == pytest.approx(_adam(gradients), abs=2e-5)
        assert others == pytest.approx([_adam(gradients[1:])] * 2, abs=2e-5)


def _adam(gradients: list[float]) -> float:
    """The engine adds epsilon to the root of the plain second moment."""
    value = m = v = 0.0
    for t, gradient in enumerate(gradients, start=1):
        m = 0.8 * m + 0.2 * gradient
        v = 0.9 * v + 0.1 * gradient**2
        rate = TABLE_RATE * math.sqrt(1 - 0.9**t) / (1 - 0.8**t)
        value -= rate * m / (math.sqrt(v) + 1e-3)
    return value
