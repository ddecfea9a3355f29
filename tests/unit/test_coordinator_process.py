"""The real process: it survives kill -9, and what hinders its start is said in one sentence."""

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest
from coordinator_rig import Clock, finish, make_dataset, make_job, work

from fleet_config.errors import EXIT_TRY_AGAIN, TryAgain
from fleetps.coordinator.__main__ import main
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.running_clock import RunningClock
from fleetps.coordinator.serve import listen

PATIENCE = 30
_TOKEN = "open sesame"  # noqa: S105


class Coordinator:
    def __init__(self, root, **sections) -> None:
        make_dataset(root / "data")
        self.job = make_job(root, **sections)
        self.file = root / "job.json"
        self.file.write_text(self.job.model_dump_json())
        self.address_file = self.job.run_dir / "coordinator.address"

    def start(self, bind="127.0.0.1:0", *options, **environ) -> subprocess.Popen:
        self.address_file.unlink(missing_ok=True)
        clean = {key: value for key, value in os.environ.items() if "FLEETPS" not in key}
        command = [sys.executable, "-m", "fleetps.coordinator", "--job", str(self.file)]
        return subprocess.Popen(
            [*command, "--bind", bind, *options],
            env={**clean, **environ},
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextlib.contextmanager
    def running(self, bind="127.0.0.1:0", *options, **environ):
        process = self.start(bind, *options, **environ)
        try:
            yield process, self.address(process)
        finally:
            process.kill()
            process.communicate(timeout=PATIENCE)

    def address(self, process) -> str:
        deadline = time.monotonic() + PATIENCE
        while not self.address_file.exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self.address_file.read_text().strip()


@pytest.fixture
def coordinator(tmp_path):
    return Coordinator(tmp_path)


@pytest.fixture
def refused(coordinator, capsys, monkeypatch):
    """The exit code and the one line of a coordinator that does not even begin."""

    def run(bind="127.0.0.1:0") -> tuple[int, str]:
        code = main(["--job", str(coordinator.file), "--bind", bind])
        text = capsys.readouterr().err
        assert len(text.splitlines()) == 1
        return code, text

    for name in ("FLEETPS_TOKEN", "FLEETPS_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield run
    root.setLevel(level)
    root.handlers[:] = handlers


def _assemble(client, digest) -> None:
    client.register("server", "s0", "127.0.0.1:6000", None, digest)
    client.heartbeat("s0", "serving")
    for worker in ("w0", "w1"):
        client.register("worker", worker, "127.0.0.1", None, digest)


def test_it_ends_when_it_cannot_keep_its_state(coordinator):
    with (
        coordinator.running() as (process, address),
        CoordinatorClient(address, None, deadline=PATIENCE) as client,
    ):
        shutil.rmtree(coordinator.job.run_dir)  # a full disk ends in the same place
        with pytest.raises(TryAgain, match="can't keep its state in"):
            client.register("server", "s0", "127.0.0.1:6000", None, coordinator.job.digest())
        _, text = process.communicate(timeout=PATIENCE)
    assert process.returncode == EXIT_TRY_AGAIN
    assert f"can't keep its state in {coordinator.job.run_dir}" in text.splitlines()[-1]
    assert "Traceback" not in text


def test_kill_and_restart_on_the_same_port_and_the_job_goes_on(coordinator):
    with coordinator.running() as (first, address), CoordinatorClient(address) as client:
        _assemble(client, coordinator.job.digest())
        done, held = client.lease("w0"), client.lease("w1")
        assert done.kind == held.kind == "task"
        assert finish(client, "w0", done.task)
        first.kill()
        first.wait(PATIENCE)
        with coordinator.running(address) as (second, again):
            assert again == address
            assert client.status().accounting.done == done.task.rows
            assert finish(client, "w1", held.task)
            work(client, "w0", "w1")
            for name in ("w0", "w1", "s0"):
                client.heartbeat(name, "exited")
            rows = client.status().accounting
            assert (rows.leased, rows.done, rows.repeated) == (120, 120, 0)
            assert second.wait(PATIENCE) == 0  # by itself: the job is done and all have left
    assert (coordinator.job.run_dir / "result.json").exists()


def test_a_failed_job_is_the_exit_code(coordinator):
    with coordinator.running() as (process, address), CoordinatorClient(address) as client:
        _assemble(client, coordinator.job.digest())
        client.fail("w0", "bad data", exit_code=2)
        for name in ("w0", "w1", "s0"):
            client.heartbeat(name, "exited")
        process.terminate()
        assert process.wait(PATIENCE) == 2


def test_the_rendezvous_deadline_ends_it_with_the_names(tmp_path):
    coordinator = Coordinator(tmp_path, cluster={"deadlines": {"rendezvous": 0.1}})
    with coordinator.running() as (process, _):
        assert process.wait(PATIENCE) == 75
        assert "server 0, worker 0, worker 1 did not register" in process.stderr.read()


def test_sigterm_ends_it_and_keeps_the_state(coordinator):
    with coordinator.running() as (process, address), CoordinatorClient(address) as client:
        _assemble(client, coordinator.job.digest())
        process.terminate()
        assert process.wait(PATIENCE) == 143
    with coordinator.running() as (_, address), CoordinatorClient(address) as client:
        assert client.status().job == "running"
    # Unless it is told to forget it.
    with (
        coordinator.running("127.0.0.1:0", "--new") as (_, address),
        CoordinatorClient(address) as client,
    ):
        assert client.status().job == "waiting"


def test_a_port_in_use_is_worth_another_try(refused):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        bind = f"127.0.0.1:{sock.getsockname()[1]}"
        code, text = refused(bind)
    assert code == 75
    assert f"cannot listen at {bind}: the port is in use" in text


def test_a_second_coordinator_of_the_same_run_is_kept_away(coordinator, refused):
    with coordinator.running() as (first, _):
        code, text = refused()
        assert code == 75
        assert f"another coordinator (process {first.pid}) works in" in text


def test_everybody_may_listen_only_with_a_token(coordinator, refused):
    code, text = refused("0.0.0.0:0")
    assert code == 2
    assert "set FLEETPS_TOKEN" in text
    with (
        coordinator.running("127.0.0.1:0", FLEETPS_TOKEN=_TOKEN) as (_, address),
        CoordinatorClient(address, _TOKEN) as client,
    ):
        assert client.status().job == "waiting"


def test_a_damaged_state_file_is_named(coordinator, refused):
    coordinator.job.run_dir.mkdir(parents=True)
    (coordinator.job.run_dir / "coordinator.sqlite").write_bytes(b"garbage" * 1000)
    code, text = refused()
    assert code == 2
    assert "coordinator.sqlite" in text
    assert "move it away" in text


@pytest.mark.parametrize(
    ("bind", "sentence"),
    [
        ("localhost", "give host:port"),
        ("localhost:99999", "give host:port"),
        ("no.such.host.invalid:1", "the name no.such.host.invalid cannot be resolved"),
    ],
)
def test_an_address_that_cannot_be_is_named(refused, bind, sentence):
    code, text = refused(bind)
    assert code == 2
    assert sentence in text


def test_a_job_that_cannot_be_read_is_named(coordinator, refused):
    coordinator.file.write_text("{}")
    code, text = refused()
    assert code == 2
    assert f"{coordinator.file}: not a job written by this version" in text
    coordinator.file.unlink()
    code, text = refused()
    assert code == 2
    assert "No such file" in text


def test_data_that_is_not_there_is_named(coordinator, refused):
    (coordinator.job.data.path / "train-00001.txt").unlink()
    code, text = refused()
    assert code == 2
    assert "train-00001.txt: is missing" in text


def test_time_in_which_it_was_stopped_does_not_count():
    time = Clock()
    clock = RunningClock(time)
    start = clock()
    for seconds in (0.5, 2.0, 0.0, 15.0, 0.5, 3600.0, 1.0):
        time.advance(seconds)
        clock()
    assert clock() - start == 4.0


def test_answers_are_not_held_back_by_nagles_algorithm():
    # asyncio turns it off only where the protocol is named; otherwise each answer waits 40 ms.
    with listen("127.0.0.1:0", None) as sock:
        assert sock.proto == socket.IPPROTO_TCP
