"""The same methods over HTTP: the token, refusals in words, retries, and what people look at."""

import base64
import contextlib
import inspect
import itertools
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import httpx
import pytest
import uvicorn
from coordinator_rig import Rig, make_job, work
from fastapi import FastAPI, Response
from isolation import free_port

from fleet_config.errors import Stopped, TryAgain, UserError
from fleetps import refusal, statusline, waiting
from fleetps.coordinator.access import read_token, with_token
from fleetps.coordinator.app import make_app
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.protocol import Coordinator
from fleetps.coordinator.requests import METHODS
from fleetps.coordinator.service import JobService
from fleetps.waiting import wait


@contextlib.contextmanager
def served(app: FastAPI):
    """The address of the app, served by a thread on a free port."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()  # from here on, connections wait until the thread is ready
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield f"127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path, job={"epochs": 2})


@pytest.fixture
def address(rig):
    with served(make_app(rig.service, None)) as address:
        yield address


@pytest.fixture
def client(address):
    with CoordinatorClient(address, deadline=10) as client:
        yield client


def test_a_whole_job_over_http_by_workers_in_threads(rig, client):
    digest = rig.job.digest()
    assert client.register("server", "s0", "127.0.0.1:6000", None, digest).rank == 0
    for worker in ("w0", "w1"):
        client.register("worker", worker, "127.0.0.1", None, digest, rig.job.agreement())
        client.heartbeat(worker, "running")
    assert client.rendezvous("w0").servers == ("127.0.0.1:6000",)
    client.heartbeat("s0", "serving")

    done: dict[str, int] = {}
    threads = [
        threading.Thread(
            target=lambda name: done.update({name: len(work(client, name))}), args=(w,)
        )
        for w in ("w0", "w1")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(done.values()) == 10
    for worker in ("w0", "w1"):
        client.heartbeat(worker, "exited")
    assert client.heartbeat("s0", "serving").job == "done"
    status = client.status()
    assert status == rig.service.status()
    assert status.history[-1].auc == 1.0
    assert client.events().events == rig.service.events().events
    assert client.events(after=3).events[0].id == 4


def test_every_method_answers_as_the_service_does(rig, client):
    rig.assemble()
    task = rig.task("w0")
    assert client.progress("w0", task.id, 5, 1, 2.5, {"lr": 0.1}).accepted
    assert client.status().workers[0].extra == {"lr": 0.1}
    assert not client.done("w0", task.id, 5, 1, 2.5).accepted
    lease = client.lease("w0")
    assert lease.kind == "task"
    assert client.failed("w0", lease.task.id, "no luck").accepted
    assert client.release("w1").job == "running"
    assert client.arrive("w1", "somewhere", note="here").job == "running"
    assert client.arrived(name="somewhere").notes == {1: "here"}
    assert client.heartbeat("s0", "serving", {"rows.embedding": 7}).job == "running"
    assert client.status().servers[0].rows == {"embedding": 7}
    with pytest.raises(UserError, match="not of mode bounded"):
        client.clock("w1", 0, 0)
    assert client.fail("w1", "broken", ["a", "b"], 2).exit_code == 2
    assert client.stop("too late").reason == "worker 1: broken"
    assert client.lease("w0").kind == "stop"


def test_how_large_the_job_is(client):
    assert client.size().model_dump() == {"servers": 1, "workers": 2}


def test_waiting_for_the_end_of_a_job(rig, address, client, monkeypatch):
    monkeypatch.setattr(statusline, "_PATIENCE", 0.2)
    rig.assemble()
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(wait, address, None, patience=60)
        client.stop("enough")
        with pytest.raises(Stopped, match="enough"):
            end.result(60)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with pytest.raises(TryAgain, match="has not answered"):
        wait(f"127.0.0.1:{port}", None, patience=0)


@pytest.mark.parametrize(
    ("end", "error", "said"),
    [
        (lambda client: client.stop("enough"), Stopped, "test-job is stopping; enough"),
        (
            lambda client: client.fail("w1", "broken", [], 2),
            UserError,
            "test-job is failed; worker 1: broken",
        ),
    ],
)
def test_a_job_that_is_over_is_answered_for_by_what_it_left(
    rig, client, monkeypatch, capsys, end, error, said
):
    monkeypatch.setattr(statusline, "_PATIENCE", 0.2)
    rig.assemble()
    run = rig.job.run_dir
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        (run / "coordinator.address").write_text(f"127.0.0.1:{nobody.getsockname()[1]}\n")
    with pytest.raises(TryAgain, match="has not answered"):
        wait(None, str(run), patience=0)
    end(client)
    with pytest.raises(error, match=said.partition("; ")[2]):
        wait(None, str(run), patience=60)
    assert statusline.show("", str(run), as_json=False) == 0
    assert capsys.readouterr().out == f"{said}\n"


def test_who_waited_for_a_job_may_start_it_again_at_once(rig, monkeypatch):
    """Its coordinator is gone by then, and with it the containers that would count as running."""
    done = rig.service.status().model_copy(update={"job": "done"})
    leaving = Mock(status=Mock(side_effect=[done, done, done, TryAgain("nobody answers")]))
    monkeypatch.setattr(waiting, "client_of", lambda *_: contextlib.nullcontext(leaving))
    assert wait("127.0.0.1:7000", None, patience=0) == 0
    assert leaving.status.call_count == 4
    again = done.model_copy(update={"job": "running"})
    leaving.status.side_effect = [done, again]
    assert wait("127.0.0.1:7000", None, patience=0) == 0
    monkeypatch.setattr(waiting, "_LEAVING_SECONDS", 0)
    leaving.status.side_effect = itertools.repeat(done)  # one that stays for good
    assert wait("127.0.0.1:7000", None, patience=0) == 0


def test_waiting_for_a_job_that_cannot_start(tmp_path):
    """Nobody else could tell of the mistake."""
    with pytest.raises(UserError, match="data: does not exist"):
        wait("127.0.0.1:1", None, patience=0, job=make_job(tmp_path))


def test_waiting_for_a_coordinator_that_refuses_to_start(tmp_path, monkeypatch):
    monkeypatch.setattr(statusline, "_PATIENCE", 0.2)
    job = Rig(tmp_path).job
    with pytest.raises(UserError, match="a mistake"), refusal.left_in(job.run_dir):
        raise UserError("a mistake")
    left = job.run_dir / "coordinator.refusal"
    os.utime(left, (1, 1))
    refusal.raise_left_in(job.run_dir, since=2)  # may be mended meanwhile
    os.utime(left, times=(2**32, 2**32))
    with pytest.raises(UserError, match="a mistake"):
        wait("127.0.0.1:1", None, patience=0, job=job)
    with refusal.left_in(job.run_dir):
        pass  # now it starts
    assert not left.exists()


def test_the_clock_over_http(tmp_path):
    mode = {"name": "bounded", "staleness": 10, "check_every": 5}
    rig = Rig(tmp_path, mode=mode)
    rig.assemble()
    with served(make_app(rig.service, None)) as address, CoordinatorClient(address) as client:
        task = rig.task("w0")
        assert client.clock("w0", epoch=0, steps=0).limit == 10
        client.clock("w0", 0, 7)
        steps = {"steps": 1, "step_seconds": 0.25, "idle_seconds": 0.0}
        client.progress("w0", task.id, 5, 1, 1.0, {"waited": 1.5, **steps})
        steps = {"steps": 3, "step_seconds": 0.75, "idle_seconds": 0.125}
        client.progress("w0", task.id, 15, 3, 3.0, {"waited": 1.5, "learning_rate": 0.5, **steps})
        metrics = httpx.get(f"http://{address}/metrics").text.splitlines()
    assert 'fleetps_worker_lead{rank="0"} 0.0' in metrics
    assert 'fleetps_worker_waited_seconds_total{rank="0"} 1.5' in metrics
    assert "fleetps_max_lead 0.0" in metrics
    assert 'fleetps_worker_step_seconds{rank="0"} 0.25' in metrics
    assert 'fleetps_worker_idle_ratio{rank="0"} 0.25' in metrics
    assert 'fleetps_worker_straggler{rank="0"} 0.0' in metrics
    assert 'fleetps_worker_train_loss{rank="0"} 0.2' in metrics
    assert 'fleetps_worker_learning_rate{rank="0"} 0.5' in metrics
    assert not any(line.startswith("fleetps_worker_gradient_norm{") for line in metrics)
    assert "fleetps_stalled 0.0" in metrics


def test_a_loss_that_is_no_number_over_http(tmp_path):
    rig = Rig(tmp_path)
    rig.assemble()
    with served(make_app(rig.service, None)) as address, CoordinatorClient(address) as client:
        state = client.diverged("w0", rig.task("w0").id, "the loss became nan")
    assert (state.job, state.exit_code) == ("failed", 2)
    assert state.reason.startswith("worker 0: the loss became nan: the training diverged; lower")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_the_same_arguments_everywhere(name):
    declared = inspect.signature(getattr(Coordinator, name)).parameters
    served_by = inspect.signature(getattr(JobService, name)).parameters
    called = inspect.signature(getattr(CoordinatorClient, name)).parameters
    assert list(declared) == list(served_by) == list(called)
    defaults = [parameter.default for parameter in declared.values()]
    assert defaults == [parameter.default for parameter in served_by.values()]


def test_refusals_come_as_the_same_errors(client):
    with pytest.raises(UserError, match="another job than the coordinator"):
        client.register("worker", "w", "127.0.0.1", None, "wrong")
    with pytest.raises(TryAgain, match="does not know instance 'nobody'"):
        client.lease("nobody")
    with pytest.raises(UserError, match=r"the request is not valid: body\.instance"):
        client.lease("")
    with pytest.raises(UserError, match="the training diverged"):
        client.progress("w", 1, 1, 1, float("nan"))


@pytest.fixture
def guarded(rig):
    with served(make_app(rig.service, "open sesame")) as address:
        yield address


def test_without_the_token_only_health_answers(guarded):
    paths = ["/", "/status", "/events", "/metrics", "/nothing"]
    assert httpx.get(f"http://{guarded}/health").json() == {"status": "ok"}
    assert {httpx.get(f"http://{guarded}{path}").status_code for path in paths} == {401}
    assert httpx.post(f"http://{guarded}/v1/stop", json={"reason": "?"}).status_code == 401
    for token in (None, "wrong"):
        with (
            CoordinatorClient(guarded, token) as client,
            pytest.raises(UserError, match="FLEETPS_TOKEN"),
        ):
            client.status()


def test_with_the_token_programs_and_browsers_get_in(guarded):
    with CoordinatorClient(guarded, "open sesame") as client:
        assert client.status().job == "waiting"
    answer = httpx.get(f"http://{guarded}/")
    assert answer.headers["WWW-Authenticate"].startswith("Basic")
    assert httpx.get(f"http://{guarded}/", auth=("anybody", "open sesame")).status_code == 200
    assert httpx.get(f"http://{guarded}/", auth=("open sesame", "")).status_code == 401
    for header in ("Basic %%%", "Basic " + base64.b64encode(b"no colon").decode(), "Digest x", ""):
        headers = {"Authorization": header}
        assert httpx.get(f"http://{guarded}/status", headers=headers).status_code == 401


def test_the_page_and_the_metrics(rig, address):
    rig.assemble()
    rig.finish_task("w0", rig.task("w0"))
    load = {"rows.embedding": 17, "memory.used": 3e8, "memory.limit": 1e9}
    rig.service.heartbeat("s0", "serving", load)
    rig.service.fail("w1", "killed", exit_code=-9, again=True)
    for path, kind in (("/", "html"), ("/page.css", "css"), ("/page.js", "javascript")):
        page = httpx.get(f"http://{address}{path}")
        assert page.headers["Content-Type"].startswith(f"text/{kind}")
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "://" not in page.text.replace("http://www.w3.org/", "")  # nothing from elsewhere
    metrics = httpx.get(f"http://{address}/metrics").text.splitlines()
    assert 'fleetps_job_state{state="running"} 1.0' in metrics
    assert 'fleetps_task_rows{state="done"} 25.0' in metrics
    assert 'fleetps_members{role="worker",state="running"} 1.0' in metrics
    assert 'fleetps_server_rows{rank="0",table="embedding"} 17.0' in metrics
    assert 'fleetps_members_wanted{role="worker"} 2.0' in metrics
    assert 'fleetps_member_memory_bytes{rank="0",role="server"} 3e+08' in metrics
    assert 'fleetps_member_memory_limit_bytes{rank="0",role="server"} 1e+09' in metrics
    assert 'fleetps_events_total{kind="worker-lost"} 1.0' in metrics
    assert "fleetps_workers_lost_total 1.0" in metrics
    assert 'fleetps_worker_rows_total{rank="0"} 25.0' in metrics
    assert 'fleetps_lease_rows_total{outcome="leased"} 25.0' in metrics


def test_nobody_there_is_said_after_the_deadline():
    address = f"127.0.0.1:{free_port()}"
    with (
        CoordinatorClient(address, deadline=0.3) as client,
        pytest.raises(TryAgain, match=rf"the coordinator at {address} has not answered for 0\.3 s"),
    ):
        client.status()


def test_server_errors_are_retried_and_a_lease_is_not_given_twice():
    app = FastAPI()
    seen: list[bytes] = []

    @app.post("/v1/lease")
    async def lease(body: dict[str, str]) -> Response:
        seen.append(body["request"].encode())
        if len(seen) < 3:
            return Response(status_code=500)
        return Response('{"kind": "wait", "seconds": 1}', media_type="application/json")

    with served(app) as address, CoordinatorClient(address, deadline=30) as client:
        assert client.lease("w").kind == "wait"
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_something_else_at_the_address_is_recognised():
    with (
        served(FastAPI()) as address,
        CoordinatorClient(address) as client,
        pytest.raises(
            UserError, match=r"is not a FleetPS coordinator of this version \(HTTP status 404"
        ),
    ):
        client.heartbeat("w", "running")


@pytest.mark.parametrize("content", [b"<html>", b"\xff", b"", b"[]", b'{"status": "ok"}'])
def test_also_one_that_has_an_answer_to_everything(content):
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    async def anything() -> Response:
        return Response(content)

    with served(app) as address, CoordinatorClient(address) as client:
        for call in (client.status, client.events, client.size, lambda: client.lease("w")):
            with pytest.raises(UserError, match=r"not a FleetPS coordinator .*HTTP status 200"):
                call()


def test_close_ends_calls_that_wait():
    client = CoordinatorClient(f"127.0.0.1:{free_port()}", deadline=600)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            client.status()
        except TryAgain as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    client.close()
    thread.join(30)
    assert not thread.is_alive()
    assert "was broken off" in str(errors[0])


def test_a_client_from_the_environment_of_a_child(rig, guarded):
    environ = {"FLEETPS_COORDINATOR": guarded, "FLEETPS_TOKEN": "open sesame"}
    with CoordinatorClient.from_environment(environ) as client:
        assert client.status().name == "test-job"
    with pytest.raises(UserError, match="FLEETPS_COORDINATOR is not set"):
        CoordinatorClient.from_environment({})


def test_it_is_as_patient_as_the_agent_says_and_tells_that_it_still_asks():
    environ = {"FLEETPS_COORDINATOR": f"127.0.0.1:{free_port()}", "FLEETPS_PATIENCE": "0.9"}
    asked: list[int] = []
    with CoordinatorClient.from_environment(environ) as client:
        client.on_silence = lambda: asked.append(1)
        with pytest.raises(TryAgain, match=r"has not answered for 0\.9 s"):
            client.status()
    assert asked


def test_proxies_for_the_internet_are_not_used(address, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with CoordinatorClient(address, deadline=1) as client:
        assert client.status().job == "waiting"


def test_a_launcher_makes_a_token_where_there_is_none(tmp_path):
    file = tmp_path / "new"
    assert with_token({"FLEETPS_TOKEN": "mine"}, file) == {"FLEETPS_TOKEN": "mine"}
    assert not file.exists()
    token = read_token(with_token({"FLEETPS_TOKEN": ""}, file))
    assert token
    assert len(token) >= 32
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_token_comes_from_the_environment_or_a_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("  secret\n")
    assert read_token({}) is None
    assert read_token({"FLEETPS_TOKEN": "abc"}) == "abc"
    assert read_token({"FLEETPS_TOKEN_FILE": str(file)}) == "secret"
    assert read_token({"FLEETPS_TOKEN_FILE": str(file), "FLEETPS_TOKEN": "secret"}) == "secret"
    with pytest.raises(UserError, match="hold different tokens"):
        read_token({"FLEETPS_TOKEN_FILE": str(file), "FLEETPS_TOKEN": "other"})
    with pytest.raises(UserError, match=r"the token cannot be read \(No such file"):
        read_token({"FLEETPS_TOKEN_FILE": str(tmp_path / "nothing")})
    file.write_text("\n")
    with pytest.raises(UserError, match="the file is empty"):
        read_token({"FLEETPS_TOKEN_FILE": str(file)})
    file.write_text("two\nlines")
    with pytest.raises(UserError, match="one line of printable ASCII"):
        read_token({"FLEETPS_TOKEN_FILE": str(file)})


def test_where_the_servers_own_metrics_are(rig, address):
    def targets():
        return httpx.get(f"http://{address}/targets").json()

    assert targets() == []
    rig.assemble()
    assert targets() == [{"targets": ["10.0.0.2:s0"], "labels": {"role": "server", "rank": "0"}}]
    rig.service.stop("enough")
    rig.service.heartbeat("s0", "exited")
    assert targets() == []
