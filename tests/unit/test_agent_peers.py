"""What an agent watches: a server's port, and a coordinator that it hosts."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from fleet_config.errors import FleetError, Stopped, TryAgain, UserError
from fleet_config.job import Job
from fleetps import agent
from fleetps.agents import hosting, membership, server_port
from fleetps.agents.hosting import HostedCoordinator
from fleetps.agents.membership import Membership, NewGeneration
from fleetps.agents.server_port import ServerPort
from fleetps.data.synthetic import SyntheticSpec, make_synthetic
from fleetps.observe.display import make_display
from fleetps.observe.job_view import JobView
from fleetps.system.signals import StopRequest


def repeat(call: Callable[[], object]) -> None:
    """Call until it raises, at most 60 s."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        call()


def repeat_until(true: Callable[[], bool]) -> None:
    """At most 60 s."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline


class PaddlesPort(BaseHTTPRequestHandler):
    """Answers like a Paddle server, as far as an agent asks."""

    def do_GET(self) -> None:
        self._answer("OK" if self.path == "/health" else "no")

    def do_POST(self) -> None:
        command = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        accepted = self.path == "/PsService/service" and "table_id" in command
        answer = {"err_code": 0 if accepted else -1, "err_msg": ""}
        if command["cmd_id"] == 20:
            sizes = {0: (1234, 1000), 3: (0, 0)}.get(command["table_id"])
            answer["data"] = base64.b64encode(struct.pack("<qq", *sizes) if sizes else b"").decode()
        self._answer(json.dumps(answer))

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def serving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), PaddlesPort)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and says nothing, like a stopped process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


class TestServerPort:
    def test_it_says_once_that_the_server_serves(self, serving: str) -> None:
        port = ServerPort(serving, 60, 60)
        assert port.check()
        assert not port.check()

    def test_it_can_ask_for_the_end(self, serving: str) -> None:
        assert ServerPort(serving, 60, 60).ask_to_stop()

    def test_it_tells_how_many_rows_a_table_has(self, serving: str) -> None:
        port = ServerPort(serving, 60, 60)
        assert [port.rows(table_id) for table_id in (0, 3, 1)] == [1234, 0, None]

    def test_nobody_there_to_be_asked(self, free_port: int) -> None:
        port = ServerPort(f"127.0.0.1:{free_port}", 60, 60)
        assert not port.check()
        assert not port.ask_to_stop()
        assert port.rows(0) is None

    def test_a_server_that_never_comes(self, silent: str, monkeypatch) -> None:
        monkeypatch.setattr(server_port, "_ANSWER_SECONDS", 0.1)
        port = ServerPort(silent, 0, 60)
        with pytest.raises(TryAgain, match=rf"{silent} 0 s after its start .*server_start"):
            port.check()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    data = tmp_path / "data"
    make_synthetic(data, SyntheticSpec(rows=100, test_rows=50, distinct_ids=52))
    return Job.model_validate(
        {
            "job": {"name": "a", "output": tmp_path / "runs"},
            "cluster": {"heartbeat": 0.1, "deadlines": {"rendezvous": 20.0}},
            "data": {"path": data},
        }
    )


@pytest.fixture
def host(job: Job) -> Iterator[HostedCoordinator]:
    hosted = HostedCoordinator(job, {**os.environ, "FLEETPS_TOKEN": "t"})
    yield hosted
    hosted.end(0, StopRequest())


def reseeded(job: Job) -> Job:
    return job.model_copy(update={"job": job.job.model_copy(update={"seed": 7})})


def others(than: psutil.Process) -> list[psutil.Process]:
    return [process for process in psutil.Process().children() if process.pid != than.pid]


def is_coordinator(job: Job, process: psutil.Process) -> bool:
    return str(job.run_dir / "job.json") in process.cmdline()


def coordinator_of(job: Job) -> psutil.Process:
    return next(one for one in psutil.Process().children() if is_coordinator(job, one))


class TestHostedCoordinator:
    def test_it_answers_and_ends(
        self, host: HostedCoordinator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hosting, "_CALL_SECONDS", 1.0)
        host.start("127.0.0.1:0")
        host.check()
        assert host.client.status().job == "waiting"
        host.end(0, StopRequest())
        with pytest.raises(TryAgain):
            host.client.status()

    @pytest.mark.parametrize(
        ("number", "error", "sentence"),
        [
            (signal.SIGKILL, TryAgain, "the coordinator ended: killed by SIGKILL"),
            (signal.SIGTERM, Stopped, r"the coordinator was asked to stop \(SIGTERM\)"),
        ],
    )
    def test_its_death_is_noticed_and_described(
        self,
        host: HostedCoordinator,
        job: Job,
        number: signal.Signals,
        error: type[FleetError],
        sentence: str,
    ) -> None:
        host.start("127.0.0.1:0")
        coordinator_of(job).send_signal(number)
        with pytest.raises(error, match=sentence):
            repeat(host.check)

    def test_killed_it_is_started_again_where_it_was(
        self, host: HostedCoordinator, job: Job
    ) -> None:
        host.start("127.0.0.1:0")
        address = host.address
        for _ in range(job.cluster.restarts):
            killed = coordinator_of(job)
            killed.kill()
            while not any(is_coordinator(job, one) for one in others(killed)):
                host.keep()
            assert any("--restarted" in one.cmdline() for one in others(killed))
            assert host.client.status().job == "waiting"
        assert host.address == address
        coordinator_of(job).kill()
        with pytest.raises(TryAgain, match="killed by SIGKILL"):
            repeat(host.keep)

    def test_who_stops_its_process_too_has_its_host_stopped(
        self, host: HostedCoordinator, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hosting, "_CALL_SECONDS", 0.3)
        host.start("127.0.0.1:0")
        coordinator_of(job).terminate()
        with pytest.raises(Stopped):
            repeat(host.check)
        stop, view = StopRequest(), JobView(host.client, make_display("json", 1))
        stop.signal = signal.SIGTERM
        with pytest.raises(Stopped, match=r"was asked to stop \(SIGTERM\); .* was not told"):
            agent._watch_coordinator(job, host, view, stop)

    def test_a_port_in_use(self, host: HostedCoordinator, silent: str) -> None:
        with pytest.raises(TryAgain, match=rf"could not start: .*{silent}.* in use"):
            host.start(silent)

    def test_the_files_of_another_one_are_left_alone(
        self, host: HostedCoordinator, job: Job
    ) -> None:
        host.start("127.0.0.1:0")
        files = [job.run_dir / name for name in ("job.json", "coordinator.address")]
        before = [file.read_text() for file in files]
        env = {**os.environ, "FLEETPS_TOKEN": "t"}
        with pytest.raises(TryAgain, match=r"another coordinator \(process \d+\) works in"):
            HostedCoordinator(reseeded(job), env).start("127.0.0.1:0")
        assert [file.read_text() for file in files] == before

    def test_another_machine_could_reach_it_without_a_token(self, job: Job) -> None:
        env = {name: value for name, value in os.environ.items() if "TOKEN" not in name}
        with pytest.raises(UserError, match="FLEETPS_TOKEN"):
            HostedCoordinator(job, env).start("0.0.0.0:0")

    def test_it_ends_once_everybody_has_left(
        self, host: HostedCoordinator, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FLEETPS_TOKEN", "t")
        host.start("127.0.0.1:0")
        member = Membership(job, "worker", host.address, patience=5)
        member.join("here", None)
        assert member.name == "worker 0"
        assert member.end_now() is None
        ended = threading.Thread(target=host.end, args=(60, StopRequest()))
        ended.start()
        assert member.end_now() is None  # still there, for those who have not yet heard
        member.leave()
        ended.join(20)
        assert not ended.is_alive()


class TestMembership:
    def test_the_end_of_the_job_is_heard(
        self, host: HostedCoordinator, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FLEETPS_TOKEN", "t")
        host.start("127.0.0.1:0")
        one, two = (Membership(job, "worker", host.address, patience=5) for _ in range(2))
        one.join("here", 0)
        two.join("there", 1)
        answer = one.fail("it broke", ["last line"], 2)
        assert (answer.reason, answer.exit_code) == ("worker 0: it broke", 2)
        deadline = time.monotonic() + 60
        while (heard := two.end_heard()) is None:
            assert time.monotonic() < deadline
        assert heard.reason == "worker 0: it broke"
        failure = host.client.status().failure
        assert failure is not None
        assert failure.log_tail == ("last line",)
        one.leave()
        two.leave()

    def test_a_lost_process_is_reported_before_another_is_started(
        self, host: HostedCoordinator, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FLEETPS_TOKEN", "t")
        host.start("127.0.0.1:0")
        member = Membership(job, "worker", host.address, patience=5)
        member.join("here", 0)
        assert member.lose("it broke", ["last line"], -9) is None
        assert host.client.status().losses == ("worker 0: it broke; it is started again",)
        member.leave()

    def test_a_new_generation_takes_everybody_out_of_what_they_do(
        self, host: HostedCoordinator, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FLEETPS_TOKEN", "t")
        host.start("127.0.0.1:0")
        server = Membership(job, "server", host.address, patience=5)
        worker = Membership(job, "worker", host.address, patience=5)
        server.join("127.0.0.1:1", 0)
        worker.join("there", 0)
        server.say("serving")
        repeat_until(lambda: host.client.status().phase == "train")
        with pytest.raises(NewGeneration):
            server.lose("it broke", [], -9)
        with pytest.raises(NewGeneration):
            repeat(worker.end_heard)
        worker.begin_again("there")
        assert worker.end_heard() is None
        server.begin_again("127.0.0.1:2")
        worker.meet()
        assert (worker.generation, worker.servers) == (1, ("127.0.0.1:2",))
        assert host.client.status().servers[0].state == "registered"
        server.leave()
        worker.leave()

    def test_a_coordinator_that_is_gone(
        self, host: HostedCoordinator, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FLEETPS_TOKEN", "t")
        monkeypatch.setattr(membership, "_CALL_SECONDS", 0.3)
        host.start("127.0.0.1:0")
        member = Membership(job, "worker", host.address, patience=0.2)
        member.join("here", 0)
        address = host.address
        host.end(0, StopRequest())
        with pytest.raises(TryAgain, match=f"the coordinator at {address} has not answered"):
            repeat(member.check_coordinator)
        assert member.fail("it broke", [], None).reason == "worker 0: it broke"
        with pytest.raises(TryAgain, match="has not answered"):
            member.lose("it broke", [], -9)  # so no other process is started in its place
        member.leave()
