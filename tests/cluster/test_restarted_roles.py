"""Roles that something starts again whenever they end, as Kubernetes does: FLEETPS_RESTART."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from running_job import Program, Roles, events, job_file, nobody_left, unused, wait_until

from fleet_config.errors import EXIT_OK, EXIT_STOPPED

pytestmark = pytest.mark.cluster

FOREVER = 10_000  # epochs
STAYS = "this process stays until it is stopped"


def stays(program: Program) -> None:
    wait_until(lambda: STAYS in program.everything(), 60, STAYS, program.everything)
    assert program.popen.poll() is None


def test_a_job_that_is_done_stays_done(tmp_path: Path, small_data: Path, free_port: int) -> None:
    job = Roles(tmp_path, job_file(tmp_path, small_data), f"127.0.0.1:{free_port}")

    def start(label: str, role: str) -> Program:
        restart = "until-done" if role == "WORKER" else "always"
        return job.start(label, ROLE=role, FLEETPS_RESTART=restart, SERVER_PORT=unused())

    first, server = start("coordinator", "COORDINATOR"), start("server", "SERVER")
    assert start("worker", "WORKER").exit_code(120) == EXIT_OK
    for program in (first, server):
        stays(program)
    result = (tmp_path / "runs/job/result.json").read_bytes()

    # A node is drained: all of them come again, and nothing begins.
    for program in (first, server):
        program.send(signal.SIGTERM)
        assert program.exit_code() == EXIT_OK, program.everything()
    again = [start("coordinator-again", "COORDINATOR"), start("server-again", "SERVER")]
    assert start("worker-again", "WORKER").exit_code(60) == EXIT_OK
    for program in again:
        stays(program)
        program.send(signal.SIGTERM)
        assert program.exit_code() == EXIT_OK, program.everything()
    nobody_left()
    assert (tmp_path / "runs/job/result.json").read_bytes() == result
    assert not list((tmp_path / "runs/job").glob("previous-*"))


def test_a_worker_that_leaves_is_no_worker_that_is_done(
    tmp_path: Path, small_data: Path, free_port: int
) -> None:
    file = job_file(tmp_path, small_data, workers=2, epochs=FOREVER)
    job = Roles(tmp_path, file, f"127.0.0.1:{free_port}")
    coordinator = job.start("coordinator", ROLE="COORDINATOR", FLEETPS_RESTART="always")
    server = job.start("server", ROLE="SERVER", SERVER_PORT=unused(), FLEETPS_RESTART="always")
    workers = [
        job.start(f"worker-{name}", ROLE="WORKER", FLEETPS_RESTART="until-done") for name in "ab"
    ]
    coordinator.wait_for_output("epoch 1/")
    workers[0].send(signal.SIGTERM)
    assert workers[0].exit_code() == EXIT_STOPPED, workers[0].everything()
    assert [event["text"] for event in events(tmp_path / "runs/job", "worker-left")]
    coordinator.send(signal.SIGTERM)
    for program in (coordinator, server, workers[1]):
        assert program.exit_code() == EXIT_STOPPED, program.everything()
    nobody_left()
