"""Mode bounded: nobody gets further ahead of the slowest than the bound allows."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known import Data
from running_job import FLEETPS, Program, job_file, nobody_left, one, wait_until
from together import Together, run_together

from fleet_config.job import Job
from fleetps.coordinator.client import CoordinatorClient

pytestmark = pytest.mark.cluster

STALENESS = 4
TOKEN = "of-this-test"  # noqa: S105


def bounded_job(tmp_path: Path, workers: int, **mode: Any) -> Job:
    """40 batches per worker in tasks of 5."""
    data = Data(rows=workers * 40 * 4)
    return Job.model_validate(
        {
            "job": {"name": "bounded", "output": str(tmp_path / "runs")},
            "cluster": {"servers": 1, "workers": workers, "heartbeat": 60},
            "data": {
                "path": str(data.write(tmp_path / "data")),
                "batch_size": 4,
                "task_rows": 20,
            },
            "model": {"name": "linear"},
            "tables": {"embedding": {"dim": 3}},
            "mode": {"name": "bounded", "staleness": STALENESS, "check_every": 2, **mode},
            "evaluate": {"every_epochs": 0},
        }
    )


def lead(found: Together, fast: int, slow: int) -> int:
    """By how many batches one was ahead of another at most, while that one trained."""
    mine, others = found.steps(fast), found.steps(slow)
    during = np.arange(1, len(mine) + 1)[mine < others[-1]]
    return int(max(during - np.searchsorted(others, mine[mine < others[-1]])))


def test_a_fast_worker_waits(tmp_path: Path) -> None:
    found = run_together(bounded_job(tmp_path, 2), tmp_path, slow={1: 0.05})
    assert 1 < lead(found, 0, 1) <= STALENESS
    fast, slow = sorted(found.status.workers, key=lambda worker: worker.rank)
    assert fast.waited > slow.waited
    assert found.status.rows_done == found.status.rows_total


def test_with_a_quorum_the_slowest_is_not_waited_for(tmp_path: Path) -> None:
    job = bounded_job(tmp_path, 3, quorum=0.6)  # ceil(0.6 * 3) = 2 are waited for
    found = run_together(job, tmp_path, slow={1: 0.02, 2: 0.2})
    assert lead(found, 0, 2) > STALENESS
    assert lead(found, 0, 1) <= STALENESS


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_worker_is_not_waited_for(
    tmp_path: Path, small_data: Path, number: signal.Signals
) -> None:
    """Killed, it is started again; stopped, it is lost after five heartbeats of 0.5 s."""
    file = job_file(tmp_path, small_data, workers=2, epochs=1000)
    mode = "mode={name: bounded, staleness: 2, check_every: 1}"
    command = [*FLEETPS, "launch", "--config", str(file), "--set", mode]
    program = Program(command, tmp_path, env={"FLEETPS_TOKEN": TOKEN})
    program.wait_for_output("loss")
    address = (tmp_path / "runs" / "job" / "coordinator.address").read_text().strip()
    with CoordinatorClient(address, TOKEN) as client:
        process = one("fleetps.training.worker", env="PADDLE_TRAINER_ID=1")
        agent = process.parent()
        for victim in (agent, process):
            victim.send_signal(number)
        survivor = {w.rank: w for w in client.status().workers}[0].rows

        def goes_on() -> bool:
            rows = {w.rank: w.rows for w in client.status().workers}
            return rows[0] > survivor + 10 * 256

        wait_until(goes_on, 30, "worker 0 to go on", program.everything)
    program.send(signal.SIGTERM)
    assert program.exit_code(30) == 143
    nobody_left()
