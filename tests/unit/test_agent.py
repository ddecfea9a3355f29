"""What an agent decides: addresses, sizes, the child's environment, why a child ended."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleet_config.errors import EXIT_USER, Stopped, TryAgain, UserError
from fleet_config.job import Job
from fleet_config.roles import Role, resolve_role
from fleetps import health
from fleetps.agent import coordinator_address
from fleetps.agents import counting, paddle_launcher, paddle_process
from fleetps.agents.child_dir import ChildDirectory
from fleetps.agents.child_env import Place, local_environment, paddle_environment
from fleetps.agents.membership import any_present, end_of
from fleetps.agents.restarts import Restarts
from fleetps.agents.worker import WorkerAgent
from fleetps.coordinator.messages import JobState
from fleetps.coordinator.reports import ServerStatus
from fleetps.main import main, sizes_of
from fleetps.system.pulse_file import WORKED_FILE
from fleetps.system.signals import StopRequest


def paddle_role(servers: str, workers: str, **more: str) -> Role:
    return resolve_role(
        {
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_TRAINER_ID": "0",
            "PADDLE_PSERVERS_IP_PORT_LIST": servers,
            "PADDLE_TRAINER_ENDPOINTS": workers,
            **more,
        }
    )


class TestCoordinatorAddress:
    def test_one_machine_meets_on_loopback(self) -> None:
        role = paddle_role("10.0.0.5:6000,10.0.0.5:6001", "10.0.0.5:6002")
        assert coordinator_address(role) == "127.0.0.1:7000"

    def test_several_machines_meet_beside_server_0(self) -> None:
        role = paddle_role("10.0.0.5:6000", "10.0.0.6:6002")
        assert coordinator_address(role) == "10.0.0.5:7000"

    def test_a_named_coordinator_is_taken_as_it_is(self) -> None:
        role = paddle_role("10.0.0.5:6000", "10.0.0.5:6002", COORDINATOR="10.0.0.5:9")
        assert coordinator_address(role) == "10.0.0.5:9"

    def test_workers_that_are_not_listed_may_be_anywhere(self) -> None:
        role = resolve_role({"ROLE": "WORKER", "SERVER_ENDPOINTS": "ps:6000"})
        assert coordinator_address(role) == "ps:7000"


def test_the_environment_says_how_many_there_are() -> None:
    role = paddle_role("a:1,b:1", "c:1,d:1,e:1")
    assert sizes_of(role) == ["cluster.servers=2", "cluster.workers=3"]
    assert sizes_of(resolve_role({})) == []


def test_a_service_is_as_large_as_its_name_has_addresses(monkeypatch) -> None:
    found = iter([set(), {"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}])
    last: set[str] = set()

    def addresses(name: str) -> set[str]:
        nonlocal last
        assert name == "server"
        last = next(found, last)
        return last

    monkeypatch.setattr(counting, "_addresses", addresses)
    monkeypatch.setattr(counting, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(counting, "_STEADY_SECONDS", 0.01)
    role = resolve_role({"ROLE": "COORDINATOR", "COORDINATOR": "co:1", "SERVERS_AT": "server"})
    assert sizes_of(role) == ["cluster.servers=2"]
    monkeypatch.setattr(counting, "_SECONDS", 0.0)
    last = set()
    with pytest.raises(TryAgain, match="SERVERS_AT=server: that name has had no address for 0 s"):
        sizes_of(role)


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, None),
        ({"ROLE": "COORDINATOR", "COORDINATOR": "co:7164"}, "127.0.0.1:7164"),
        ({"ROLE": "WORKER", "COORDINATOR": "co:7164"}, "co:7164"),
        ({"ROLE": "SERVER", "COORDINATOR": "co:7164", "SERVER_ENDPOINT": "s:6"}, "s:6"),
    ],
)
def test_who_answers_for_the_health_of_a_container(environ, address: str | None) -> None:
    assert health.address_of(resolve_role(environ)) == address


class TestChildEnvironment:
    PLACE = Place("worker", 1, "10.0.0.6", "0", ("a:1", "b:2"), 4)

    def made(self, outer: dict[str, str], place: Place = PLACE) -> dict[str, str]:
        return paddle_environment(
            outer, place, coordinator="c:1", patience=75.0, instance="worker-x", generation=2
        )

    def test_a_worker(self) -> None:
        env = self.made({"FLEETPS_TOKEN": "t"})
        assert env["TRAINING_ROLE"] == "TRAINER"
        assert env["PADDLE_TRAINER_ID"] == "1"
        assert env["PADDLE_TRAINERS_NUM"] == "4"
        assert env["PADDLE_PSERVERS_IP_PORT_LIST"] == "a:1,b:2"
        assert env["PADDLE_WITH_GLOO"] == "0"
        assert env["FLEETPS_COORDINATOR"] == "c:1"
        assert env["FLEETPS_PATIENCE"] == "75"
        assert env["FLEETPS_INSTANCE"] == "worker-x"
        assert env["FLEETPS_GENERATION"] == "2"
        assert env["FLEETPS_TOKEN"] == "t"  # noqa: S105

    def test_a_token_file_is_found_from_its_own_directory(self, tmp_path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert self.made({"FLEETPS_TOKEN_FILE": "t"})["FLEETPS_TOKEN_FILE"] == f"{tmp_path}/t"

    def test_a_server(self) -> None:
        env = self.made({}, Place("server", 1, "b", "2", ("a:1", "b:2"), 4))
        assert env["TRAINING_ROLE"] == "PSERVER"
        assert f"{env['POD_IP']}:{env['PADDLE_PORT']}" in env["PADDLE_PSERVERS_IP_PORT_LIST"]
        assert "PADDLE_TRAINER_ID" not in env

    def test_what_other_launchers_left_is_dropped(self) -> None:
        env = self.made({"PADDLE_GLOO_HTTP_ENDPOINT": "x", "http_proxy": "y", "HOME": "/h"})
        assert "PADDLE_GLOO_HTTP_ENDPOINT" not in env
        assert "http_proxy" not in env
        assert env["HOME"] == "/h"

    def test_threads_and_the_cpu_setting_are_the_users_where_given(self) -> None:
        assert self.made({})["OMP_NUM_THREADS"] == "1"
        own = self.made({"OMP_NUM_THREADS": "3", "MKL_DEBUG_CPU_TYPE": "4"})
        assert (own["OMP_NUM_THREADS"], own["MKL_DEBUG_CPU_TYPE"]) == ("3", "4")

    def test_alone(self) -> None:
        env = local_environment({"PADDLE_PORT": "1"})
        assert env["FLEETPS_LOCAL"] == "1"
        assert "PADDLE_PORT" not in env


class TestChildDirectory:
    @pytest.fixture
    def job(self, tmp_path: Path) -> Job:
        return Job.model_validate({"job": {"name": "a"}, "data": {"path": tmp_path}})

    def test_the_job_file_and_nothing_of_an_earlier_process(self, tmp_path: Path, job: Job) -> None:
        directory = ChildDirectory(tmp_path / "work/worker-0")
        directory.path.mkdir(parents=True)
        (directory.path / "error.json").write_text('{"message": "old"}')
        directory.prepare(job)
        assert Job.model_validate_json((directory.path / "job.json").read_text()) == job
        assert not (directory.path / "error.json").exists()

    def test_a_place_that_cannot_be_written(self, tmp_path: Path, job: Job) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UserError, match=r"job\.output"):
            ChildDirectory(tmp_path / "file/work").prepare(job)

    def test_its_own_words_come_first(self, tmp_path: Path) -> None:
        words = {"kind": "user", "message": "shard 3 is damaged"}
        (tmp_path / "error.json").write_text(json.dumps(words))
        reason = ChildDirectory(tmp_path).reason(EXIT_USER, tmp_path / "none.log")
        assert reason == "shard 3 is damaged"

    @pytest.mark.parametrize("left", ["", "{", "[]", '{"kind": "user"}'])
    def test_otherwise_the_exit_code(self, tmp_path: Path, left: str) -> None:
        (tmp_path / "error.json").write_text(left)
        reason = ChildDirectory(tmp_path).reason(-signal.SIGSEGV, tmp_path / "none.log")
        assert reason.startswith("its Paddle process ended: crashed with SIGSEGV")

    def test_with_the_exception_that_ended_it(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_text("KeyError: 'x'\n")
        reason = ChildDirectory(tmp_path).reason(1, log)
        assert reason == "its Paddle process ended: exit code 1 (KeyError: 'x')"

    def test_a_servers_tables(self, tmp_path: Path, job: Job) -> None:
        directory = ChildDirectory(tmp_path)
        assert directory.tables() == {}
        (tmp_path / "tables.json").write_text('{"embedding": 0, "wide": 2}')
        assert directory.tables() == {"embedding": 0, "wide": 2}
        directory.prepare(job)
        assert directory.tables() == {}


def worker_agent(tmp_path: Path, **settings: object) -> WorkerAgent:
    job = Job.model_validate(
        {"job": {"name": "a", "output": tmp_path}, "data": {"path": tmp_path}, **settings}
    )
    role = resolve_role({"ROLE": "WORKER", "COORDINATOR": "127.0.0.1:1"})
    return WorkerAgent(job, role, "127.0.0.1:1", StopRequest(), 1.0)


def test_a_paddle_process_waits_longer_for_the_coordinator_than_its_agent(
    tmp_path: Path, monkeypatch
) -> None:
    agent, started = worker_agent(tmp_path), []
    monkeypatch.setattr(
        paddle_process,
        "Child",
        lambda *_, **how: started.append(how) or SimpleNamespace(pid=1, **how),
    )
    paddle_process.start_paddle(agent.job, agent.place(), agent.membership)
    assert float(started[0]["env"]["FLEETPS_PATIENCE"]) == agent.membership.patience + 5


class TestDeadWorkers:
    KILLED, CRASHED, STOPPED = -signal.SIGKILL, -signal.SIGSEGV, 143

    def test_it_is_started_again_unless_it_is_done_or_the_user_must_act(self, tmp_path) -> None:
        agent = worker_agent(tmp_path)
        ends = (self.KILLED, self.CRASHED, 1, 75, self.STOPPED, 0, EXIT_USER)
        assert [agent.starts_again(code) for code in ends] == [True] * 5 + [False] * 2

    def test_not_for_ever(self, tmp_path) -> None:
        assert not worker_agent(tmp_path, cluster={"restarts": 0}).starts_again(self.KILLED)

    @pytest.mark.parametrize(
        ("mode", "restarts", "code", "waits"),
        [
            ("async", 3, KILLED, False),
            ("async", 3, CRASHED, False),
            ("async", 0, CRASHED, True),  # it would end the job: perhaps a server died first
            ("async", 3, STOPPED, True),  # perhaps the whole job is stopped
            ("sync", 3, KILLED, False),
            ("sync", 3, CRASHED, True),  # perhaps another worker died first
            ("sync", 3, EXIT_USER, False),
        ],
    )
    def test_whether_a_peer_may_be_the_cause(self, tmp_path, mode, restarts, code, waits) -> None:
        agent = worker_agent(tmp_path, mode=mode, cluster={"restarts": restarts})
        assert agent.follows(code) == waits


class TestAskedToStopBetweenTwoGenerations:
    """Its process has ended, and it has not registered for the new generation yet."""

    @staticmethod
    def stopped(tmp_path: Path, monkeypatch, *answers: JobState) -> tuple[str, list[str]]:
        """How the agent ends, and the reasons with which it has the whole job stopped."""
        agent, asked = worker_agent(tmp_path), []

        def register() -> None:
            agent.membership.rank = 0

        def begin_again() -> bool:
            raise Stopped("stopped by SIGTERM")

        said = itertools.chain(answers, itertools.repeat(answers[-1]))
        client = SimpleNamespace(
            heartbeat=lambda *_: next(said), stop=lambda reason: asked.append(reason) or answers[0]
        )
        monkeypatch.setenv("FLEETPS_RESTART", "until-done")
        monkeypatch.setattr(agent, "_join", register)
        monkeypatch.setattr(agent, "_take_part", begin_again)
        monkeypatch.setattr(agent.membership, "client", client)
        with pytest.raises(Stopped) as end:
            agent.run()
        return str(end.value), asked

    RUNNING = JobState(job="running", generation=1)

    def test_alone_it_leaves(self, tmp_path, monkeypatch) -> None:
        how, asked = self.stopped(tmp_path, monkeypatch, self.RUNNING)
        assert how.startswith("worker 0 was asked to stop")
        assert asked == []

    def test_with_the_whole_job_it_waits_for_its_end(self, tmp_path, monkeypatch) -> None:
        ending = self.RUNNING.model_copy(update={"ending": True})
        over = self.RUNNING.model_copy(update={"job": "stopping"})
        how, asked = self.stopped(tmp_path, monkeypatch, ending, self.RUNNING, over)
        assert how == "stopped by SIGTERM"
        assert len(asked) == 1


class TestRestarts:
    """Three in a row, as by default."""

    def lives(self, monkeypatch, *lives: tuple[float, bool | None]) -> list[float]:
        """One after the other, with its seconds and whether it did a task: pauses that follow."""
        clock = [0.0]
        monkeypatch.setattr("fleetps.agents.restarts.time.monotonic", lambda: clock[0])
        restarts, pauses = Restarts(3), []
        for seconds, useful in lives:
            restarts.began()
            clock[0] += seconds
            restarts.died(useful=useful)
            if not restarts.left:
                break
            pauses.append(restarts.pause())
            restarts.again()
        return pauses

    def test_pauses_end_somewhere(self) -> None:
        restarts = Restarts(9)
        for _ in range(8):
            restarts.again()
        assert restarts.pause() == 30

    def test_what_does_no_task_is_given_up(self, monkeypatch) -> None:
        assert self.lives(monkeypatch, *[(1e6, False)] * 9) == [1, 2, 4]

    def test_what_does_one_in_between_is_not(self, monkeypatch) -> None:
        assert self.lives(monkeypatch, (1, False), (1, False), (1, True), (1, False)) == [
            1,
            2,
            1,
            2,
        ]

    def test_what_has_no_tasks_shows_by_its_age_that_it_works(self, monkeypatch) -> None:
        assert self.lives(monkeypatch, *[(59, None)] * 9) == [1, 2, 4]
        assert self.lives(monkeypatch, *[(60, None)] * 9) == [1] * 9

    def test_a_worker_leaves_a_mark_when_it_has_done_a_task(self, tmp_path) -> None:
        agent = worker_agent(tmp_path)
        directory = ChildDirectory(tmp_path / "work")
        directory.prepare(agent.job)
        assert not directory.worked()
        (directory.path / WORKED_FILE).touch()
        assert directory.worked()
        directory.prepare(agent.job)
        assert not directory.worked()


class TestEnds:
    def test_the_error_follows_the_jobs_end(self) -> None:
        failed = JobState(job="failed", generation=0, reason="worker 0: x", exit_code=75)
        assert isinstance(end_of(failed), TryAgain)
        assert str(end_of(failed)) == "worker 0: x"
        assert isinstance(end_of(failed.model_copy(update={"exit_code": 2})), UserError)
        assert isinstance(end_of(JobState(job="stopping", generation=0, reason="y")), Stopped)

    def test_who_is_still_waited_for(self) -> None:
        here = ServerStatus(rank=0, address="a:1", state="serving", heartbeat_age=1.0)
        assert any_present([here], heartbeat=2.0)
        assert not any_present([here.model_copy(update={"state": "exited"})], heartbeat=2.0)
        assert not any_present([here.model_copy(update={"heartbeat_age": 7.0})], heartbeat=2.0)


class TestPaddleLauncher:
    def test_none_where_no_launcher_set_a_role(self) -> None:
        assert paddle_launcher.launcher_pid({}) is None

    def test_another_parent_is_no_launcher(self) -> None:
        assert paddle_launcher.launcher_pid({"TRAINING_ROLE": "TRAINER"}) is None

    @pytest.mark.parametrize("name", ["fleetrun", "fleetrun.py"])
    def test_its_children_know_it_and_end_with_it(self, tmp_path: Path, name: str) -> None:
        script = tmp_path / name
        script.write_text(
            "import subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]])\n"
            "child.wait()\n"
        )
        code = (
            "import os, signal, time\n"
            "from fleetps.agents import paddle_launcher as launcher\n"
            "parent = launcher.launcher_pid(os.environ)\n"
            "assert parent == os.getppid(), parent\n"
            "launcher.follow(parent)\n"
            "launcher.report_failure(parent, os.environ)\n"
            "signal.sigtimedwait([], 20)\n"
            "print('outlived it', flush=True)\n"
        )
        done = subprocess.run(
            [sys.executable, str(script), code],
            env={**os.environ, "TRAINING_ROLE": "TRAINER"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == -signal.SIGTERM, done.stderr
        assert done.stdout == ""

    def test_a_launcher_that_looks_at_exit_codes_is_left_alone(self) -> None:
        environ = {"TRAINING_ROLE": "TRAINER", "PADDLE_ROLE": "TRAINER"}
        paddle_launcher.report_failure(os.getppid(), environ)


class TestMain:
    def test_a_missing_job_file(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("ROLE", raising=False)
        assert main(["--config", "/no/such.yaml"]) == EXIT_USER
        assert "/no/such.yaml" in capsys.readouterr().err

    def test_an_unknown_option(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--confg", "x"]) == EXIT_USER
        assert "--config" in capsys.readouterr().err
