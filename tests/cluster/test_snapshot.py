"""What a checkpoint gives back: everything, on any number of servers and workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from known import Data
from together import Together, run_together

from fleet_config.job import Job
from fleetps.checkpoint.store import Checkpoints

pytestmark = pytest.mark.cluster


def job_of(tmp_path: Path, data: Path, servers: int, workers: int) -> Job:
    return Job.model_validate(
        {
            "job": {"name": "snapshot", "output": str(tmp_path / "runs")},
            "cluster": {"servers": servers, "workers": workers, "heartbeat": 60},
            "data": {"path": str(data), "batch_size": 8, "task_rows": 8},
            "model": {"name": "linear"},
            "tables": {"embedding": {"dim": 3}},
            "evaluate": {"every_epochs": 0},
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Data().write(tmp_path_factory.mktemp("snapshot") / "data")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, data: Path) -> tuple[Together, Checkpoints]:
    """2 servers and 2 workers trained, and worker 0 saved."""
    place = tmp_path_factory.mktemp("saved")
    store = Checkpoints(place / "checkpoints")
    job = job_of(place, data, servers=2, workers=2)
    found = run_together(job, place, save=store.begin(1))
    return found, store


@pytest.mark.parametrize(("servers", "workers"), [(2, 2), (3, 1), (1, 4)])
def test_everything_comes_back(
    tmp_path: Path, data: Path, saved: tuple[Together, Checkpoints], servers: int, workers: int
) -> None:
    before, store = saved
    (checkpoint,) = store.list()
    job = job_of(tmp_path, data, servers, workers)
    after = run_together(job, tmp_path, restore=checkpoint.path)
    assert after.lines("begin") == before.lines("end")
    servers_before = before.dense(0, "servers-end")
    for name, value in after.dense(0, "servers-begin").items():
        np.testing.assert_array_equal(value, servers_before[name])
    for worker in range(workers):
        state = before.dense(worker % 2)
        for name, value in after.dense(worker, "begin").items():
            if name not in servers_before:
                np.testing.assert_array_equal(value, state[name])
    assert any(name not in servers_before for name in after.dense(0, "begin"))
