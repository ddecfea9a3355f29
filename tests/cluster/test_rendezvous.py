"""Roles by the environment, one process at a time: who is missing or wrong is named in time."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running_job import Roles, job_file, nobody_left, unused, wait_until

from fleet_config.errors import EXIT_OK, EXIT_STOPPED, EXIT_TRY_AGAIN, EXIT_USER

pytestmark = pytest.mark.cluster

FOREVER = 10_000  # epochs
# Longer than the job's own deadline, far shorter than Paddle's 300 s.
SECONDS = 25.0


@pytest.fixture
def port(free_port: int) -> int:
    return free_port


def roles(tmp_path: Path, data: Path, port: int, **job: int) -> Roles:
    return Roles(tmp_path, job_file(tmp_path, data, **job), f"127.0.0.1:{port}")


@contextmanager
def occupied() -> Iterator[int]:
    """A port that this process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_only_role_and_coordinator(tmp_path: Path, small_data: Path, port: int) -> None:
    job = roles(tmp_path, small_data, port, servers=2, workers=2)
    programs = [
        job.start("worker-a", ROLE="WORKER"),
        job.start("server-a", ROLE="SERVER", SERVER_PORT=unused()),
        job.start("server-b", ROLE="SERVER", SERVER_PORT=unused()),
        job.start("coordinator", ROLE="COORDINATOR"),
        job.start("worker-b", ROLE="WORKER"),
    ]
    for program in programs:
        assert program.exit_code(120) == EXIT_OK, program.everything()
    nobody_left()
    assert "epoch 1/1: AUC" in programs[3].out
    assert (tmp_path / "runs/job/result.json").exists()


def test_static_lists_need_no_coordinator(tmp_path: Path, small_data: Path) -> None:
    servers = f"127.0.0.1:{unused()},127.0.0.1:{unused()}"
    job = Roles(tmp_path, job_file(tmp_path, small_data), "")
    lists = {"SERVER_ENDPOINTS": servers, "WORKER_ENDPOINTS": "127.0.0.1"}
    programs = [
        job.start(f"server-{rank}", ROLE="SERVER", SERVER_ENDPOINT=own, **lists)
        for rank, own in enumerate(servers.split(","))
    ]
    programs.append(job.start("worker", ROLE="WORKER", WORKER_INDEX="0", **lists))
    for program in programs:
        assert program.exit_code(120) == EXIT_OK, program.everything()
    nobody_left()
    assert "epoch 1/1: AUC" in programs[0].out


def test_a_missing_worker_is_named_by_everybody(
    tmp_path: Path, small_data: Path, port: int
) -> None:
    job = roles(tmp_path, small_data, port, workers=2, rendezvous=5)
    programs = [
        job.start("coordinator", ROLE="COORDINATOR"),
        job.start("server", ROLE="SERVER", SERVER_PORT=unused()),
        job.start("worker", ROLE="WORKER"),
    ]
    for program in programs:
        assert program.exit_code(SECONDS) == EXIT_TRY_AGAIN, program.everything()
        assert "worker 1 did not register within 5 s" in program.err
    nobody_left()


def test_a_missing_server_is_named(tmp_path: Path, small_data: Path, port: int) -> None:
    job = roles(tmp_path, small_data, port, servers=2, rendezvous=5)
    job.start("coordinator", ROLE="COORDINATOR")
    server = job.start("server", ROLE="SERVER", SERVER_PORT=unused())
    assert server.exit_code(SECONDS) == EXIT_TRY_AGAIN, server.everything()
    assert "server 1" in server.err
    nobody_left()


def test_a_missing_coordinator_is_named(tmp_path: Path, small_data: Path, port: int) -> None:
    job = roles(tmp_path, small_data, port, rendezvous=3)
    worker = job.start("worker", ROLE="WORKER")
    assert worker.exit_code(SECONDS) == EXIT_TRY_AGAIN, worker.everything()
    assert f"the coordinator at 127.0.0.1:{port} has not answered for 3 s" in worker.err
    nobody_left()


def test_a_port_in_use_is_named_with_its_holder(
    tmp_path: Path, small_data: Path, port: int
) -> None:
    job = roles(tmp_path, small_data, port)
    with occupied() as taken:
        server = job.start("server", ROLE="SERVER", SERVER_ENDPOINT=f"127.0.0.1:{taken}")
        assert server.exit_code() == EXIT_TRY_AGAIN, server.everything()
    assert f"port 127.0.0.1:{taken} is in use by process {os.getpid()}" in server.err
    nobody_left()


def test_a_coordinator_that_cannot_bind(tmp_path: Path, small_data: Path) -> None:
    with occupied() as taken:
        job = roles(tmp_path, small_data, taken)
        coordinator = job.start("coordinator", ROLE="COORDINATOR")
        assert coordinator.exit_code() == EXIT_TRY_AGAIN, coordinator.everything()
    assert f"127.0.0.1:{taken}" in coordinator.err
    assert "in use" in coordinator.err
    nobody_left()


def test_a_server_whose_own_name_has_no_address(
    tmp_path: Path, small_data: Path, port: int
) -> None:
    job = roles(tmp_path, small_data, port, rendezvous=2)
    server = job.start("server", ROLE="SERVER", SERVER_ENDPOINT="no-such-host.invalid:6174")
    assert server.exit_code(SECONDS) == EXIT_TRY_AGAIN, server.everything()
    assert "the host name no-such-host.invalid can't be resolved" in server.err
    nobody_left()


def test_a_server_with_the_address_of_another_machine(
    tmp_path: Path, small_data: Path, port: int
) -> None:
    job = roles(tmp_path, small_data, port)
    server = job.start("server", ROLE="SERVER", SERVER_ENDPOINT="198.51.100.1:6174")
    assert server.exit_code() == EXIT_USER, server.everything()
    assert "198.51.100.1:6174 is not an address of this machine" in server.err
    nobody_left()


def test_contradictory_roles(tmp_path: Path, small_data: Path, port: int) -> None:
    job = roles(tmp_path, small_data, port)
    program = job.start("both", ROLE="WORKER", TRAINING_ROLE="PSERVER")
    assert program.exit_code() == EXIT_USER, program.everything()
    assert "TRAINING_ROLE=PSERVER and ROLE=WORKER disagree" in program.err
    nobody_left()


def test_another_job_file_is_refused_naming_what_differs(
    tmp_path: Path, small_data: Path, port: int
) -> None:
    job = roles(tmp_path, small_data, port, rendezvous=20)
    coordinator = job.start("coordinator", ROLE="COORDINATOR")
    other = tmp_path / "other.yaml"
    other.write_text(
        (tmp_path / "job.yaml").read_text().replace("batch_size: 256", "batch_size: 128")
    )
    worker = Roles(tmp_path, other, f"127.0.0.1:{port}").start("worker", ROLE="WORKER")
    assert worker.exit_code() == EXIT_USER, worker.everything()
    assert "data.batch_size" in worker.err
    coordinator.send(signal.SIGTERM)
    assert coordinator.exit_code() == EXIT_STOPPED, coordinator.everything()
    nobody_left()


def test_a_waiting_worker_may_leave_and_stopping_the_coordinator_ends_them_all(
    tmp_path: Path, small_data: Path, port: int
) -> None:
    job = roles(tmp_path, small_data, port, workers=2)
    programs = [
        job.start("coordinator", ROLE="COORDINATOR"),
        job.start("server", ROLE="SERVER", SERVER_PORT=unused()),
        job.start("worker", ROLE="WORKER"),
    ]
    wait_until(lambda: "joined as worker 0" in programs[2].err, 30, "the worker to join")
    programs[2].send(signal.SIGTERM)
    assert programs[2].exit_code() == EXIT_OK, programs[2].everything()
    programs[0].send(signal.SIGTERM)
    for program in programs[:2]:
        assert program.exit_code() == EXIT_STOPPED, program.everything()
    nobody_left()


def test_the_coordinator_may_be_started_again(tmp_path: Path, small_data: Path, port: int) -> None:
    job = roles(tmp_path, small_data, port, workers=1, epochs=3)
    first = job.start("coordinator", ROLE="COORDINATOR")
    others = [
        job.start("server", ROLE="SERVER", SERVER_PORT=unused()),
        job.start("worker", ROLE="WORKER"),
    ]
    first.wait_for_output("epoch 1/3: AUC")
    first.send(signal.SIGKILL)
    first.exit_code()
    again = job.start("coordinator-again", ROLE="COORDINATOR")
    for program in [again, *others]:
        assert program.exit_code(120) == EXIT_OK, program.everything()
    nobody_left()
    assert "epoch 3/3: AUC" in again.out
