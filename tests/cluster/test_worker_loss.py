"""A worker that dies: the job goes on where it can, and every row is trained all the same."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running_job import (
    FLEETPS,
    Program,
    all_rows_are_trained,
    events,
    job_file,
    kill,
    nobody_left,
    one,
    processes,
    wait_until,
)

from fleet_config.errors import EXIT_OK, EXIT_TRY_AGAIN

pytestmark = pytest.mark.cluster

ROWS = 24_000  # of an epoch, evaluation included
Launch = Callable[..., Program]


@pytest.fixture
def launch(tmp_path: Path, small_data: Path) -> Launch:
    def start(**job: Any) -> Program:
        file = job_file(tmp_path, small_data, **job)
        return Program([*FLEETPS, "launch", "--config", str(file)], tmp_path)

    return start


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_is_replaced(launch: Launch, tmp_path: Path, rank: int) -> None:
    """Rank 0 is the one that made the dense table: its replacement must not do so again."""
    program = launch(workers=2, epochs=12)
    program.wait_for_output("epoch 2/12: AUC")
    kill("fleetps.training.worker", env=f"PADDLE_TRAINER_ID={rank}")
    assert program.exit_code(180) == EXIT_OK, program.everything()
    nobody_left()
    run = tmp_path / "runs/job"
    all_rows_are_trained(run, 12, ROWS)
    (lost,) = events(run, "worker-lost")
    assert lost["who"] == f"worker {rank}"
    assert lost["text"].startswith("its Paddle process ended: killed by SIGKILL")
    assert lost["text"].endswith("; it is started again")
    assert f"worker {rank}: its Paddle process ended: killed by SIGKILL" in program.out
    assert program.err == ""
    history = json.loads((run / "result.json").read_text())["history"]
    # A dense table made anew would throw the model back to where it began.
    assert min(epoch["auc"] for epoch in history[2:]) > history[0]["auc"] - 0.01


def test_a_killed_agent_is_replaced(launch: Launch, tmp_path: Path) -> None:
    program = launch(workers=2, epochs=12)
    program.wait_for_output("epoch 2/12: AUC")
    kill("fleetps.main", env="WORKER_INDEX=1")
    assert program.exit_code(180) == EXIT_OK, program.everything()
    nobody_left()
    run = tmp_path / "runs/job"
    all_rows_are_trained(run, 12, ROWS)
    (lost,) = events(run, "worker-lost")
    assert lost["who"] == "worker 1"
    assert lost["text"].startswith("its agent (process ")
    assert lost["text"].endswith("; it is started again")


def test_one_of_two_is_given_up(launch: Launch, tmp_path: Path) -> None:
    program = launch(workers=2, epochs=6, restarts=0)
    program.wait_for_output("epoch 2/6: AUC")
    kill("fleetps.training.worker", env="PADDLE_TRAINER_ID=1")
    assert program.exit_code(180) == EXIT_OK, program.everything()
    nobody_left()
    all_rows_are_trained(tmp_path / "runs/job", 6, ROWS)
    (lost,) = events(tmp_path / "runs/job", "worker-lost")
    assert lost["text"].endswith("; the job goes on without it")


def test_the_only_worker_is_given_up_in_the_end(launch: Launch) -> None:
    program = launch(workers=1, epochs=10_000, restarts=1)
    program.wait_for_output("AUC")
    kill("fleetps.training.worker", env="PADDLE_TRAINER_ID=0")
    wait_until(lambda: bool(processes("fleetps.training.worker")), 30, "it to be started again")
    kill("fleetps.training.worker", env="PADDLE_TRAINER_ID=0")
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    (sentence,) = program.err.splitlines()
    assert sentence.startswith("worker 0: its Paddle process ended: killed by SIGKILL")
    assert sentence.endswith(
        "it had been started again 1 time (cluster.restarts); no other worker is left"
    )


def test_a_stopped_worker_does_not_hold_the_others_up(launch: Launch, tmp_path: Path) -> None:
    """Its machine is gone: nothing is heard of its agent for five heartbeats."""
    program = launch(workers=2, epochs=8)
    program.wait_for_output("epoch 2/8: AUC")
    for process in (
        one("fleetps.main", env="WORKER_INDEX=1"),
        one("fleetps.training.worker", env="PADDLE_TRAINER_ID=1"),
    ):
        process.send_signal(signal.SIGSTOP)
    run = tmp_path / "runs/job"
    wait_until(lambda: bool(events(run, "worker-lost")), 30, "the loss to be noticed")
    (lost,) = events(run, "worker-lost")
    assert lost["text"].startswith("not heard of for")
    assert program.exit_code(120) == EXIT_OK, program.everything()
    nobody_left()
    all_rows_are_trained(run, 8, ROWS)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_in_mode_sync_the_one_that_died_is_named(launch: Launch, number: signal.Signals) -> None:
    """The others' processes wait in Gloo for ever, or crash: their agents end them."""
    program = launch(workers=2, epochs=10_000, mode="sync", generations=0)
    program.wait_for_output("AUC")
    one("fleetps.training.worker", env="PADDLE_TRAINER_ID=1").send_signal(number)
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    (sentence,) = program.err.splitlines()
    assert sentence.startswith("worker 1: its Paddle process ended: ")
    assert sentence.endswith("; in mode sync the other workers can't go on without it")
