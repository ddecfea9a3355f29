"""One server, one worker: what a training and an evaluation do to the parameters, and the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from probe_job import Left, run_probe

from fleet_config.job import Job

pytestmark = pytest.mark.cluster

THREADS = 2


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, small_data: Path) -> Left:
    directory = tmp_path_factory.mktemp("training")
    job = Job.model_validate(
        {
            "job": {"name": "training", "output": str(directory / "runs"), "epochs": 2},
            "cluster": {"threads": THREADS},
            "data": {"path": str(small_data), "batch_size": 128, "task_rows": 6_000},
            "tables": {"embedding": {"dim": 5}},
            "model": {"name": "deepfm", "params": {"hidden": [16, 8]}},
        }
    )
    return run_probe(job, directory)


def test_worker_has_the_servers_dense_values(left: Left) -> None:
    worker = left.dense("worker-evaluated-0")
    together = np.concatenate([worker[name].reshape(-1) for name in sorted(worker)])
    np.testing.assert_allclose(together, left.server_dense("trained-0"), rtol=1e-5, atol=1e-7)


def test_training_moves_every_dense_parameter_and_makes_rows(left: Left) -> None:
    before, after = left.dense("start"), left.dense("trained-0")
    for name in before:
        assert np.abs(after[name] - before[name]).max() > 1e-3, name
    assert left.rows("start") == {}
    assert len(left.rows("trained-0")) > 1_000


@pytest.mark.parametrize("epoch", [0, 1])
def test_evaluation_changes_nothing(left: Left, epoch: int) -> None:
    trained, evaluated = f"trained-{epoch}", f"evaluated-{epoch}"
    assert left.rows(trained) == left.rows(evaluated)
    np.testing.assert_array_equal(left.server_dense(trained), left.server_dense(evaluated))
    for name, values in left.dense(trained).items():
        np.testing.assert_array_equal(values, left.dense(evaluated)[name])


def test_rows_add_up(left: Left) -> None:
    status = left.status()
    rows = status["accounting"]
    assert status["rows_done"] == 2 * 20_000
    assert rows["done"] == rows["leased"] == rows["total"] == 2 * (20_000 + 4_000)
    assert rows["repeated"] == rows["returned"] == rows["quarantined"] == 0
    assert [epoch["evaluated_rows"] for epoch in status["history"]] == [4_000, 4_000]
    # Each row has 26 ids; show counts them.
    assert sum(row[2] for row in left.rows("end").values()) == 2 * 20_000 * 26


def test_it_learns(left: Left) -> None:
    first, second = left.status()["history"]
    assert second["train_loss"] < first["train_loss"] < 0.7
    assert second["auc"] > 0.6
