"""Mode geo: what servers and workers hold after each exchange, against numpy."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from known import BATCH, RANGE, STEPS, TABLE_RATE, Data, known_job
from puppets import Worker, puppets, run_loop
from running_job import FLEETPS, START_SECONDS, TRAIN, Program, job_file

from fleet_config.job import Job

pytestmark = pytest.mark.cluster

RATE = 0.01
K = 4  # batches between two exchanges
TASK = K * BATCH


def geo_job(tmp_path: Path, data: Data, rule: str = "naive", **sections: Any) -> Job:
    table = {
        "dim": 3,
        "rule": {"name": rule, "learning_rate": TABLE_RATE, "initial_range": RANGE},
    }
    defaults = {
        "mode": {"name": "geo", "steps": K},
        "tables": {"embedding": table},
        "optimizer": {"name": "sgd", "learning_rate": RATE},
    }
    return known_job(tmp_path, data, **{**defaults, **sections})


def sparse_changes(data: Data, start: int, rows: int) -> dict[int, float]:
    """Of every value of each id, by naive SGD, over some rows of the data."""
    changes: dict[int, float] = {}
    for batch, pushes in data.batches():
        if start <= batch.start < start + rows:
            for key, push in pushes.items():
                changes[key] = changes.get(key, 0.0) - TABLE_RATE * push.gradient
    return changes


def dense_change(data: Data, start: int, rows: int) -> np.ndarray:
    """Of b and the two w, by SGD."""
    steps = range(start // BATCH, (start + rows) // BATCH)
    gradients = [data.dense_gradients()[step] for step in steps]
    return -RATE * sum(np.concatenate([b, w[:, 0]]) for w, b in gradients)


class Expected:
    """What the servers hold."""

    def __init__(self, worker: Worker) -> None:
        self.rows, self.dense = worker.on_servers()
        assert self.rows == {}

    def exchange(self, data: Data, start: int, rows: int, workers: int) -> None:
        for key, change in sparse_changes(data, start, rows).items():
            self.rows[key] = self.rows.get(key, np.zeros(3)) + change / workers
        self.dense = self.dense + dense_change(data, start, rows) / workers

    def check(self, rows: dict[int, np.ndarray], dense: np.ndarray) -> None:
        for key in rows.keys() | self.rows.keys():
            np.testing.assert_allclose(rows[key], self.rows[key], atol=2e-5, err_msg=str(key))
        np.testing.assert_allclose(dense, self.dense, atol=2e-5)

    def check_servers(self, worker: Worker) -> None:
        self.check(*worker.on_servers())

    def check_worker(self, worker: Worker) -> None:
        """Of the local table, the rows that the servers have."""
        values = worker.values()
        rows = {key: values["embedding"][key] for key in self.rows}
        self.check(rows, np.concatenate([values["b"], values["w"][:, 0]]))


def test_one_worker_makes_the_steps_of_plain_training(tmp_path: Path) -> None:
    """With Adam for both, whose state must last from task to task."""
    data = Data(tags=True, padding=True)
    adam = {"name": "adam", "learning_rate": RATE}
    job = geo_job(tmp_path, data, rule="adam", optimizer=adam)
    steps = [reference.adam(0.9, 0.999, 1e-8) for _ in range(2)]
    with puppets(job, tmp_path) as (worker,):
        start = worker.values()
        dense = [start["w"], start["b"]]
        pushes: dict[int, list[float]] = {}
        batches = list(data.batches())
        for task in range(STEPS // K):
            worker.train(task * TASK, TASK)
            rows, on_servers = worker.on_servers()
            for t in range(task * K, task * K + K):
                gradients = data.dense_gradients()[t]
                pairs = zip(steps, dense, gradients, strict=True)
                dense = [step(p, g, t + 1, RATE) for step, p, g in pairs]
                for key, push in batches[t][1].items():
                    pushes.setdefault(key, []).append(push.gradient)
            assert rows.keys() == pushes.keys(), "neither padding nor an id of another task"
            for key, gradients_of_row in pushes.items():
                np.testing.assert_allclose(rows[key], _adam(gradients_of_row), atol=2e-5)
            expected = np.concatenate([dense[1], dense[0][:, 0]])
            np.testing.assert_allclose(on_servers, expected, atol=2e-5)


def _adam(gradients: list[float]) -> float:
    """The rule adds epsilon to the root of the plain second moment."""
    value = m = v = 0.0
    for t, gradient in enumerate(gradients, start=1):
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        rate = TABLE_RATE * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        value -= rate * m / (math.sqrt(v) + 1e-8)
    return value


def test_two_workers_exchange_the_mean_of_their_changes(tmp_path: Path) -> None:
    data = Data()
    job = geo_job(tmp_path, data, cluster={"workers": 2, "servers": 2})
    with puppets(job, tmp_path) as (one, other):
        expected = Expected(one)
        one.prepare(0, TASK)
        other.prepare(TASK, TASK)
        for worker, start in ((one, 0), (other, TASK)):
            worker.ask("train")
            worker.ask("task_done")
            expected.exchange(data, start, TASK, workers=2)
            expected.check_servers(worker)

        # The next task begins with what the other has changed meanwhile, too.
        one.prepare(2 * TASK, TASK)
        expected.check_worker(one)
        one.ask("train")
        one.ask("task_done")
        expected.exchange(data, 2 * TASK, TASK, workers=2)
        expected.check_servers(one)

        # For an evaluation everybody has the servers' newest.
        for worker in (one, other):
            worker.ask("refresh")
            worker.prepare(0, len(data.labels), training=False)
            expected.check_worker(worker)
        expected.check_servers(other)


def test_several_tables(tmp_path: Path) -> None:
    """The gradient of value j of a row is 1 + j / 2 times the known one."""
    data = Data()
    rule = {"name": "naive", "learning_rate": TABLE_RATE, "initial_range": RANGE}
    tables = {"narrow": {"dim": 2, "rule": rule}, "wide": {"dim": 5, "rule": rule}}
    job = geo_job(tmp_path, data, tables=tables, model={"name": "weighted_gradient"})
    with puppets(job, tmp_path) as (worker,):
        worker.train(0, TASK)
        worker.ask("leave", "end")
        changes = sparse_changes(data, 0, TASK)
        found = [worker.left.rows("end", number) for number in range(len(tables))]
    by_dim = {len(next(iter(rows.values()))) - 4: rows for rows in found}
    for dim in (2, 5):
        assert by_dim[dim].keys() == changes.keys()
        for key, change in changes.items():
            expected = [change * (1 + j / 2) for j in range(dim)]
            assert by_dim[dim][key][4:] == pytest.approx(expected, abs=2e-5)


def test_evaluation_makes_no_row(tmp_path: Path) -> None:
    data = Data(padding=True)
    ids = sparse_changes(data, 0, len(data.labels)).keys()
    with puppets(geo_job(tmp_path, data), tmp_path) as (worker,):
        expected = Expected(worker)
        worker.train(0, TASK)
        expected.exchange(data, 0, TASK, workers=1)
        worker.ask("refresh")
        worker.prepare(0, len(data.labels), training=False)
        expected.check_servers(worker)
        table = worker.values()["embedding"]
        unknown = ids - expected.rows.keys()
        assert unknown, "the data must have ids that come later"
        assert not table[sorted(unknown)].any(), "an id that no server knows is a row of zeros"


def test_the_last_task_may_be_short(tmp_path: Path) -> None:
    """20 batches in tasks of at most 3: what the coordinator cuts, none of it lost."""
    data = Data()
    job = geo_job(tmp_path, data, mode={"name": "geo", "steps": 3})
    left = run_loop(job, tmp_path)
    changes = sparse_changes(data, 0, len(data.labels))
    rows = left.rows("end")
    assert rows.keys() == changes.keys()
    for key, change in changes.items():
        assert rows[key][4:] == pytest.approx([change] * 3, abs=2e-5)


def test_a_job_learns_as_local_training_does(tmp_path: Path, small_data: Path) -> None:
    """With so little data the mean of two workers gets as far as one with half of the rows."""
    file = job_file(tmp_path, small_data, servers=2, workers=2, epochs=3)
    settings = ("mode={name: geo, steps: 10}", "job.epochs=6", "cluster.threads=2")
    changed = [word for setting in settings for word in ("--set", setting)]
    geo = Program([*FLEETPS, "launch", "--config", str(file), *changed], tmp_path, label="geo")
    assert geo.exit_code(3 * START_SECONDS) == 0, geo.everything()
    local = Program([*TRAIN, "--config", str(file), "--set", "job.name=local"], tmp_path)
    assert local.exit_code(START_SECONDS) == 0, local.everything()
    result, alone = (
        json.loads((tmp_path / "runs" / name / "result.json").read_text())["final"]
        for name in ("job", "local")
    )
    assert result["train_rows"] == alone["train_rows"] == 20_000
    assert result["auc"] == pytest.approx(alone["auc"], abs=0.02)
