"""A worker process that is stopped, or hangs in a batch, is ended and started again."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from running_job import FLEETPS, Program, job_file, nobody_left, one, wait_until

from fleetps.coordinator.client import CoordinatorClient

pytestmark = pytest.mark.cluster

STEP_SECONDS = 4
TOKEN = "of-this-test"  # noqa: S105


def launch(tmp_path: Path, data: Path, epochs: int) -> Program:
    file = job_file(tmp_path, data, workers=2, epochs=epochs)
    deadlines = f"cluster.deadlines={{step: {STEP_SECONDS}, stop: 8}}"
    small = "data.task_rows=1000"  # so that both workers have some all the time
    command = [*FLEETPS, "launch", "--config", str(file), "--set", deadlines, "--set", small]
    return Program(command, tmp_path, env={"FLEETPS_TOKEN": TOKEN})


def test_a_stopped_process_is_replaced(tmp_path: Path, small_data: Path) -> None:
    program = launch(tmp_path, small_data, epochs=12)
    program.wait_for_output("coordinator on")
    address = (tmp_path / "runs" / "job" / "coordinator.address").read_text().strip()
    with CoordinatorClient(address, TOKEN) as client:
        wait_until(
            lambda: [w.rows > 0 for w in client.status().workers] == [True, True],
            120,
            "rows of both workers",
        )
    one("fleetps.training.worker", env="PADDLE_TRAINER_ID=1").send_signal(signal.SIGSTOP)
    assert program.exit_code(180) == 0, program.everything()
    events = (tmp_path / "runs" / "job" / "events.jsonl").read_text()
    assert "had shown no sign of life" in events
    nobody_left()


HANGING = """
from fleet_config.sections import Deadlines
from fleetps.training.pulse import Pulse

def a_batch_that_never_ends(pulse):
    while True:
        pulse.check()  # by the thread that reports, in a real worker

pulse = Pulse(Deadlines(step=0.2, first_step=60))
with pulse.task("task 7 (train.txt rows 1-9)"):
    pulse.step()
    a_batch_that_never_ends(pulse)
"""


def test_a_hung_step_leaves_its_stack(tmp_path: Path) -> None:
    program = Program([sys.executable, "-c", HANGING], tmp_path)
    assert program.exit_code(60) == 75
    assert "a_batch_that_never_ends" in program.err
    reason = json.loads((tmp_path / "error.json").read_text())["message"]
    assert reason.startswith("made no step in task 7 (train.txt rows 1-9) within cluster.deadlines")
