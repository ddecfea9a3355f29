"""However a launched job ends: one message, the right exit code, and nobody left within 15 s."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running_job import END_SECONDS, FLEETPS, ROOT, Program, job_file, nobody_left, one, processes

from fleet_config.errors import EXIT_OK, EXIT_STOPPED, EXIT_TRY_AGAIN
from fleetps.agents.server_port import ServerPort

pytestmark = pytest.mark.cluster

FOREVER = 10_000  # epochs
Launch = Callable[..., Program]
# Makes its standard input its controlling terminal, so that it hears when that is closed.
_ON_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from fleetps.cli import main
main()
"""


@pytest.fixture
def launch(tmp_path: Path, small_data: Path) -> Launch:
    def start(**job: int) -> Program:
        file = job_file(tmp_path, small_data, **job)
        return Program([*FLEETPS, "launch", "--config", str(file)], tmp_path)

    return start


def training(program: Program) -> Program:
    """Wait until it has trained and evaluated one epoch."""
    program.wait_for_output("epoch 1/")
    program.wait_for_output("AUC")
    return program


def test_a_finished_job_leaves_a_result_and_nobody(launch: Launch, tmp_path: Path) -> None:
    program = launch(servers=2, workers=2, epochs=2)
    assert program.exit_code(120) == EXIT_OK, program.everything()
    nobody_left()
    assert "epoch 2/2: AUC" in program.out
    assert "best possible AUC" in program.out
    result = json.loads((tmp_path / "runs/job/result.json").read_text())
    rows = result["accounting"]
    assert rows["total"] == rows["done"] == 2 * (20_000 + 4_000)
    assert rows["leased"] == rows["done"] + rows["held"] + rows["returned"]
    assert program.err == ""


def test_a_running_job(launch: Launch, tmp_path: Path) -> None:
    """Its owner can look at it and stop it, but not launch it again."""
    program = training(launch(servers=1, workers=2, epochs=FOREVER))
    run = tmp_path / "runs/job"
    look = subprocess.run(
        [*FLEETPS, "status", "--json", "--run", str(run)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert look.returncode == EXIT_OK, look.stderr
    assert json.loads(look.stdout)["job"] == "running"

    command = [*FLEETPS, "launch", "--config", str(tmp_path / "job.yaml")]
    second = Program(command, tmp_path, label="second")
    assert second.exit_code() == EXIT_TRY_AGAIN
    assert second.err.startswith("a job named job already runs in")
    assert f"process {program.popen.pid}" in second.err

    program.send(signal.SIGTERM)
    assert program.exit_code() == EXIT_STOPPED, program.everything()
    nobody_left()
    assert program.err.splitlines() == ["stopped by SIGTERM"]
    assert not (run / "coordinator.token").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_stopped_on_request(launch: Launch, number: signal.Signals) -> None:
    program = training(launch(servers=1, workers=1, epochs=FOREVER))
    program.send(number)
    assert program.exit_code() == EXIT_STOPPED, program.everything()
    nobody_left()
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    assert program.err.splitlines() == [f"stopped by {name}"]


def test_stopped_together_with_all_its_processes(launch: Launch) -> None:
    """As systemd and batch systems do it: each process gets the signal."""
    program = training(launch(servers=1, workers=2, epochs=FOREVER))
    for process in processes():
        process.terminate()
    assert program.exit_code() == EXIT_STOPPED, program.everything()
    nobody_left()
    assert program.err.splitlines()[-1].startswith("stopped by SIGTERM")


def test_a_reader_that_goes_away_ends_nothing(tmp_path: Path, small_data: Path) -> None:
    """`fleetps launch ... | head -1`"""
    file = job_file(tmp_path, small_data)
    command = [*FLEETPS, "launch", "--config", str(file)]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        program.stdout.close()
        _, err = program.communicate(timeout=120)
    assert (program.returncode, err) == (EXIT_OK, "")
    assert (tmp_path / "runs/job/result.json").exists()
    nobody_left()


def test_its_terminal_is_closed(tmp_path: Path, small_data: Path) -> None:
    file = job_file(tmp_path, small_data, epochs=FOREVER)
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", _ON_TERMINAL, "launch", "--config", str(file)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while b"AUC" not in shown:
        shown += os.read(ours, 65536)
    os.close(ours)
    assert program.wait(END_SECONDS) == EXIT_STOPPED
    nobody_left()


def test_stopped_before_it_trains(launch: Launch) -> None:
    program = launch(servers=1, workers=1, epochs=FOREVER)
    program.wait_for_output("waiting for")
    program.send(signal.SIGTERM)
    assert program.exit_code() == EXIT_STOPPED, program.everything()
    nobody_left()
    assert program.err.splitlines() == ["stopped by SIGTERM"]


def test_ctrl_c_twice_does_not_wait(launch: Launch) -> None:
    program = training(launch(servers=1, workers=1, epochs=FOREVER))
    # A stopped process can't hear SIGTERM: only the second Ctrl-C gets rid of it at once.
    one("fleetps.training.worker").suspend()
    one("fleetps.main", env="ROLE=WORKER").suspend()
    program.send(signal.SIGINT)
    program.wait_for_output("stopped by Ctrl-C")
    program.send(signal.SIGINT)
    assert program.exit_code() == EXIT_STOPPED, program.everything()
    nobody_left()


def test_a_killed_worker_is_named(launch: Launch) -> None:
    """The last one that is left; see test_faults.py for the others."""
    program = training(launch(servers=1, workers=1, epochs=FOREVER, restarts=0))
    one("fleetps.training.worker").kill()
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    assert program.err.startswith("worker 0: its Paddle process ended: killed by SIGKILL")
    assert "/runs/job/logs" in program.out


def test_a_crashed_worker_is_named_with_its_last_lines(launch: Launch) -> None:
    program = training(launch(servers=1, workers=1, epochs=FOREVER, restarts=0))
    one("fleetps.training.worker").send_signal(signal.SIGSEGV)
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    # Its own handler may meet a lock that the interrupted thread holds, and abort instead.
    assert program.err.startswith("worker 0: its Paddle process ended: crashed with SIG")
    assert "the last lines of worker 0:" in program.out


def test_a_killed_server_is_named_not_the_workers_that_miss_it(launch: Launch) -> None:
    program = training(launch(servers=2, workers=2, epochs=FOREVER, generations=0))
    one("fleetps.training.server", env="FLEETPS_RANK=1").kill()
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    assert program.err.startswith("server 1: its Paddle process ended: killed by SIGKILL")


def test_a_server_that_ends_with_0_too_early_has_failed(launch: Launch) -> None:
    program = training(launch(servers=1, workers=1, epochs=FOREVER, generations=0))
    endpoint = one("fleetps.training.server").environ()["PADDLE_PSERVERS_IP_PORT_LIST"]
    assert ServerPort(endpoint, 1, 1).ask_to_stop()
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    assert "server 0: its Paddle process ended: exit 0 before the job was done" in program.err


@pytest.mark.parametrize("role", ["SERVER", "WORKER"])
def test_a_killed_agent_takes_its_child_along(launch: Launch, role: str) -> None:
    program = training(launch(servers=1, workers=1, epochs=FOREVER, restarts=0))
    one("fleetps.main", env=f"ROLE={role}").kill()
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    assert program.err.startswith(f"{role.lower()} 0: its agent")
    assert "SIGKILL" in program.err


def test_a_coordinator_that_was_killed_too_often_ends_the_job(launch: Launch) -> None:
    program = training(launch(servers=1, workers=1, epochs=FOREVER, restarts=0))
    one("fleetps.coordinator").kill()
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    assert program.err.startswith("the coordinator ended: killed by SIGKILL")


def test_nothing_outlives_a_killed_launcher(launch: Launch) -> None:
    program = training(launch(servers=1, workers=1, epochs=FOREVER))
    assert len(processes()) >= 6  # launcher, coordinator, two agents, two Paddle processes
    program.send(signal.SIGKILL)
    nobody_left()
