"""Mode sync: N workers against numpy, and against one worker on the union of their batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from known import BATCH, RANGE, STEPS, TABLE_RATE, Data
from probe_job import run_local_probe
from together import Together, run_together

from fleet_config.job import Job

pytestmark = pytest.mark.cluster

DIM = 3
RATE = 0.1


def sync_job(
    tmp_path: Path, workers: int, servers: int = 1, rows: int = BATCH * STEPS, **sections: Any
) -> tuple[Data, Job]:
    """Steps of BATCH rows over all workers; a task is one step, so they have the same rows for any
    number of workers."""
    data = Data(rows=rows)
    rule = {"name": "naive", "learning_rate": TABLE_RATE, "initial_range": RANGE}
    base: dict[str, Any] = {
        "job": {"name": "together", "output": str(tmp_path / "runs")},
        "cluster": {"servers": servers, "workers": workers, "heartbeat": 60},
        "data": {
            "path": str(data.write(tmp_path / "data")),
            "batch_size": BATCH // workers,
            "task_rows": BATCH // workers,
            "shuffle": False,
        },
        "model": {"name": "linear"},
        "tables": {"embedding": {"dim": DIM, "rule": rule}},
        "optimizer": {"name": "sgd", "learning_rate": RATE},
        "mode": {"name": "sync", "strict": True},
        "evaluate": {"every_epochs": 0},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values} if isinstance(values, dict) else values
    return data, Job.model_validate(base)


class Model:
    """The linear model in float64: dense by SGD on the mean loss, rows by it on the summed loss.

    A row of an id seen for the first time gets its first value only (docs/tables.md).
    """

    def __init__(self) -> None:
        self.w, self.b = np.full(2, 0.5), 0.0
        self.rows: dict[int, np.ndarray] = {}

    def step(self, data: Data, rows: Sequence[int]) -> None:
        index = np.array(rows)
        pulled = {key: row.copy() for key, row in self.rows.items()}
        ids = [[int(key) for key in data.ids[row]] for row in index]
        sums = [sum(pulled[key].sum() for key in keys if key in pulled) for keys in ids]
        logits = data.dense[index] @ self.w + self.b + np.array(sums)
        push = 1 / (1 + np.exp(-logits)) - data.labels[index]
        self.w = self.w - RATE * (push[:, None] * data.dense[index]).mean(axis=0)
        self.b -= RATE * push.mean()
        for keys, gradient in zip(ids, push, strict=True):
            for key in keys:
                row = self.rows.setdefault(key, np.zeros(DIM))
                row[0] -= TABLE_RATE * gradient
                if key in pulled:
                    row[1:] -= TABLE_RATE * gradient

    def train(self, data: Data, steps: Sequence[Sequence[int]]) -> Model:
        for rows in steps:
            self.step(data, rows)
        return self


def batches() -> list[range]:
    return [range(step * BATCH, (step + 1) * BATCH) for step in range(STEPS)]


def assert_equal(found: Together, workers: int, expected: Model) -> None:
    for worker in range(workers):
        dense = found.dense(worker)
        np.testing.assert_allclose(dense["w"].reshape(-1), expected.w, atol=1e-5)
        np.testing.assert_allclose(dense["b"], expected.b, atol=1e-5)
        for name, value in found.dense(0).items():  # the optimizer's state too
            np.testing.assert_array_equal(dense[name], value)
    for name, value in found.dense(0, "servers-end").items():
        np.testing.assert_array_equal(value, found.dense(0)[name])
    rows = found.rows(DIM)
    assert rows.keys() == expected.rows.keys()
    for key, row in rows.items():
        np.testing.assert_allclose(row, expected.rows[key], atol=1e-5)


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (4, 1), (2, 2), (4, 3)])
def test_strict(tmp_path: Path, workers: int, servers: int) -> None:
    data, job = sync_job(tmp_path, workers, servers)
    found = run_together(job, tmp_path)
    assert_equal(found, workers, Model().train(data, batches()))


def test_rows_that_do_not_divide(tmp_path: Path) -> None:
    """The last 13 rows are 4 + 3 + 3 + 3; padding makes the parts equal and changes nothing."""
    rows = BATCH * STEPS - 3
    data, job = sync_job(tmp_path, 4, rows=rows)
    found = run_together(job, tmp_path)
    parts = np.array_split(np.arange(rows - 13, rows), 4)
    last = [np.concatenate([part[:2] for part in parts]), np.concatenate([p[2:] for p in parts])]
    assert_equal(found, 4, Model().train(data, [*batches()[:-2], *last]))
    assert found.status.rows_done == rows


def test_accumulated_batches_are_one_large_batch(tmp_path: Path) -> None:
    """Known gradients: 2 workers, an update every 3 steps and one for the rest at the end."""
    data, job = sync_job(
        tmp_path,
        2,
        model={"name": "known_gradient"},
        optimizer={"name": "momentum", "momentum": 0.9, "accumulate": 3},
        mode="sync",
    )
    found = run_together(job, tmp_path)
    unions = [range(start, min(start + 3, STEPS)) for start in range(0, STEPS, 3)]
    steps = [[row for step in union for row in batches()[step]] for union in unions]
    assert_momentum(found, 2, data, steps)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_async_to_sync_and_back(tmp_path: Path, accumulate: int) -> None:
    """Momentum goes on with the velocity and the values it had, whichever mode comes next."""
    stages = [{"mode": name, "epochs": 1} for name in ("async", "sync", "async")]
    data, job = sync_job(
        tmp_path,
        1,
        job={"epochs": 3},
        model={"name": "known_gradient"},
        optimizer={"name": "momentum", "momentum": 0.9, "accumulate": accumulate},
        mode=stages,
    )
    found = run_together(job, tmp_path)
    unions = [range(s, min(s + accumulate, STEPS)) for s in range(0, STEPS, accumulate)] * 3
    steps = [[row for step in union for row in batches()[step]] for union in unions]
    assert_momentum(found, 1, data, steps)


def test_the_local_role_accumulates_alike(tmp_path: Path) -> None:
    optimizer = {"name": "momentum", "momentum": 0.9, "accumulate": 3}
    data, job = sync_job(
        tmp_path, 1, model={"name": "known_gradient"}, optimizer=optimizer, mode="async"
    )
    left = run_local_probe(job, tmp_path)
    unions = [range(start, min(start + 3, STEPS)) for start in range(0, STEPS, 3)]
    expected = with_momentum(data, [[r for s in union for r in batches()[s]] for union in unions])
    np.testing.assert_allclose(both(left.dense("end")), expected, atol=1e-5)


def test_two_workers_from_async_to_sync(tmp_path: Path) -> None:
    """The sum of all deltas doesn't depend on their order; sync goes on from it."""
    stages = [{"mode": "async", "epochs": 2}, {"mode": "sync", "epochs": 1}]
    data, job = sync_job(
        tmp_path, 2, job={"epochs": 3}, model={"name": "known_gradient"}, mode=stages
    )
    found = run_together(job, tmp_path)
    half = BATCH // 2
    small = [range(start, start + half) for start in range(0, len(data.labels), half)]
    steps = [*small, *small, *batches()]
    gradients = [known_gradient(data, rows) for rows in steps]
    expected = np.array([0.5, 0.5, 0.0]) - RATE * np.sum(gradients, axis=0)
    for worker in range(2):
        np.testing.assert_allclose(both(found.dense(worker)), expected, atol=1e-5)


def known_gradient(data: Data, rows: Sequence[int]) -> np.ndarray:
    """Of the mean loss, for w [2] and b."""
    index = np.array(rows)
    push = 0.5 - data.labels[index]
    return np.append((push[:, None] * data.dense[index]).mean(axis=0), push.mean())


def with_momentum(data: Data, steps: Sequence[Sequence[int]]) -> np.ndarray:
    step = reference.momentum(0.9)
    values = np.array([0.5, 0.5, 0.0])
    for number, rows in enumerate(steps, start=1):
        values = step(values, known_gradient(data, rows), number, RATE)
    return values


def both(dense: dict[str, np.ndarray]) -> np.ndarray:
    return np.append(dense["w"].reshape(-1), dense["b"])


def assert_momentum(
    found: Together, workers: int, data: Data, steps: Sequence[Sequence[int]]
) -> None:
    expected = with_momentum(data, steps)
    for worker in range(workers):
        np.testing.assert_allclose(both(found.dense(worker)), expected, atol=1e-5)
    np.testing.assert_allclose(both(found.dense(0, "servers-end")), expected, atol=1e-5)
