"""Lines of all processes of a job in the order of time, from files, containers and hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from fleet_config.errors import TryAgain, UserError
from fleetps.logbook import compose, files, show
from fleetps.logbook.line import parse
from fleetps.logbook.query import Query, query_of

DAY = datetime(2026, 11, 29).timestamp()  # on this machine's clock, as text logs have it
OPTIONS = {
    "role": None, "rank": None, "since": None, "grep": "", "lines": None, "noise": False,
    "follow": False,
}  # fmt: skip


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """What a worker and its Paddle process, a server and the coordinator have written."""
    directory = tmp_path / "run" / "logs"
    directory.mkdir(parents=True)
    record = {
        "time": datetime.fromtimestamp(DAY + 2.5).astimezone().isoformat(),
        "level": "info", "role": "server-0", "logger": "a", "message": "joined as server 0",
    }  # fmt: skip
    (directory / "server-0.agent.log").write_text(f"{json.dumps(record)}\n")
    (directory / "worker-1.agent.log").write_text(
        "2026-11-29 00:00:01,000 INFO worker: joining\n"
        "2026-11-29 00:00:03,000 INFO worker-1: joined as worker 1\n"
    )
    (directory / "worker-1.log").write_text(
        "[2026-11-29 00:00:02,000] [    INFO] distributed_strategy.py:214 - initialized\n"
        "Traceback (most recent call last):\n"
        "2026-11-29 00:00:04,000 fleetps.training.worker task 3 begins\n"
        "E1129 00:00:05.250000  4242 brpc_ps_client.cc:10] no server\n"
        "a line of its own\n"
    )
    (directory / "coordinator.log").write_text("2026-11-29 00:00:00,500 WARNING coordinator: hm")
    return directory


def told(logs: Path, **query: object) -> list[tuple[float, str, str]]:
    found = files.read(logs, Query(**query))
    return [(line.time - DAY, line.process, line.text) for line in found]


def test_all_logs_in_the_order_of_time(logs: Path) -> None:
    assert told(logs) == [
        (0.5, "coordinator", "WARNING hm"),
        (1, "worker-1", "INFO joining"),
        (2.5, "server-0", "INFO joined as server 0"),
        (3, "worker-1", "INFO joined as worker 1"),
        (4, "worker-1/paddle", "Traceback (most recent call last):"),
        (4, "worker-1/paddle", "fleetps.training.worker task 3 begins"),
        (5.25, "worker-1/paddle", "ERROR brpc_ps_client.cc:10] no server"),
        (5.25, "worker-1/paddle", "a line of its own"),
    ]


def test_noise_is_shown_on_demand(logs: Path) -> None:
    texts = [text for _, _, text in told(logs, noise=True)]
    assert "[    INFO] distributed_strategy.py:214 - initialized" in texts


@pytest.mark.parametrize(
    ("query", "processes"),
    [
        ({"role": "coordinator"}, ["coordinator"]),
        ({"role": "server"}, ["server-0"]),
        ({"rank": 1, "lines": 1}, ["worker-1", "worker-1/paddle"]),
        ({"role": "worker", "rank": 0}, []),
        ({"since": DAY + 5}, ["worker-1/paddle"] * 2),
        ({"grep": "join(ed|ing)"}, ["worker-1", "server-0", "worker-1"]),
    ],
)
def test_what_is_asked_for(logs: Path, query: dict[str, object], processes: list[str]) -> None:
    assert [process for _, process, _ in told(logs, **query)] == processes


def test_following_shows_what_comes_and_who_comes_until_the_end(logs: Path) -> None:
    """`over` is asked after each look: here it writes, twice, and then says yes."""
    looks = []

    def over() -> bool:
        looks.append(1)
        if len(looks) == 1:
            with (logs / "coordinator.log").open("a") as file:
                file.write("rah\n2026-11-29 00:00:09,000 INFO coordinator: two\n")
        if len(looks) == 2:
            (logs / "worker-2.agent.log").write_text("2026-11-29 00:00:08,000 INFO worker-2: me\n")
            with (logs / "coordinator.log").open("a") as file:
                file.write("2026-11-29 00:00:10,000 INFO coordinator: three\nhalf")
        return len(looks) == 3

    lines = list(files.read(logs, Query(follow=True, role="worker"), over=over))
    assert [line.text for line in lines][-1] == "INFO me"
    looks.clear()
    (logs / "coordinator.log").write_text("2026-11-29 00:00:00,500 WARNING coordinator: hur")
    (logs / "worker-2.agent.log").unlink()
    lines = list(files.read(logs, Query(follow=True), over=over))
    texts = [(line.process, line.text) for line in lines]
    assert texts[-4:] == [
        ("coordinator", "WARNING hurrah"),
        ("coordinator", "INFO two"),
        ("worker-2", "INFO me"),
        ("coordinator", "INFO three"),
    ]


def test_times_and_patterns_from_the_command_line() -> None:
    before = time.time()
    query = query_of(**{**OPTIONS, "since": "15m", "grep": "a|b", "rank": 3})
    assert before - 15 * 60 <= query.since <= time.time() - 15 * 60
    assert (query.grep, query.rank) == ("a|b", 3)
    exact = datetime(2026, 11, 29, 12, 30, tzinfo=timezone.utc).timestamp()
    assert query_of(**{**OPTIONS, "since": "2026-11-29T12:30:00Z"}).since == exact
    assert query_of(**{**OPTIONS, "since": "2026-11-29 13:30:00+01:00"}).since == exact
    with pytest.raises(UserError, match="--since soon: give how long ago, such as 90s"):
        query_of(**{**OPTIONS, "since": "soon"})
    with pytest.raises(UserError, match=r"--grep \(: not a regular expression"):
        query_of(**{**OPTIONS, "grep": "("})


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "{}", "2026-99-29 00:00:01,000 INFO x", ""])
def test_a_strange_line_is_its_own_text(text: str) -> None:
    found = parse(text, 2026)
    assert found.time is None
    assert found.text in text


def test_the_command_prints_utc_and_refuses_a_run_that_is_not_there(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show.of_run(logs.parent, Query(role="coordinator")) == 0
    when = datetime.fromtimestamp(DAY + 0.5, timezone.utc).isoformat(timespec="milliseconds")
    assert capsys.readouterr().out == f"{when[:-6]}Z coordinator     WARNING hm\n"
    with pytest.raises(UserError, match="no job has run in"):
        show.of_run(logs.parent / "none", Query())


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` that knows two containers."""
    (tmp_path / "a").write_text(
        '2026-11-29T00:00:02.123456789Z {"time": "2026-11-29T00:00:02+00:00", "level": "info", '
        '"role": "worker-3", "logger": "x", "message": "two"}\n'
        "2026-11-29T00:00:04Z four\n"
    )
    (tmp_path / "b").write_text(
        "Error of docker itself\n2026-11-29T00:00:03.5Z W1129 00:00:03.500000 7 a.cc:1] hm\n"
        "2026-11-29T00:00:03.6Z E1129 00:00:03.500000 7 a.cc:1] three\n"
    )
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"from pathlib import Path\n"
        "if sys.argv[1] == 'ps':\n"
        "    assert sys.argv[2:5] == ['-a', '--filter', 'label=com.docker.compose.project=ctr']\n"
        "    print('a\\tworker\\t1\\nb\\tserver\\t2')\n"
        "else:\n"
        "    assert sys.argv[1:3] == ['logs', '--timestamps']\n"
        f"    print(Path({str(tmp_path)!r}, sys.argv[-1]).read_text(), end='')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.mark.parametrize("follow", [False, True])
def test_containers_of_a_compose_project(docker: Path, follow: bool) -> None:
    lines = list(compose.read("ctr", Query(follow=follow)))
    assert [(line.process, line.text) for line in lines] == [
        ("worker-3", "INFO two"),
        ("server-2", "ERROR a.cc:1] three"),
        ("worker-1", "four"),
    ]
    assert [line.text for line in compose.read("ctr", Query(role="worker", rank=3))] == ["INFO two"]


def test_no_containers_and_no_docker(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(UserError, match="no containers of the Compose project ctr"):
        list(compose.read("ctr", Query()))
    docker.write_text("#!/bin/sh\necho is the daemon running? >&2\nexit 1\n")
    with pytest.raises(TryAgain, match="docker ps: is the daemon running"):
        list(compose.read("ctr", Query()))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="docker is not on the PATH"):
        list(compose.read("ctr", Query()))


def test_in_a_container_what_a_process_has_in_its_file_is_passed_on(tmp_path: Path) -> None:
    """Standard output is a pipe there; where it is a file nothing is repeated."""
    logs = tmp_path / "runs" / "job" / "logs"
    logs.mkdir(parents=True)
    (logs / "worker-1.log").write_text("E1129 00:00:01.000000 1 a.cc:1] of an earlier start\n")
    (logs / "coordinator.log").write_text("")
    program = """\
import sys
from pathlib import Path
from types import SimpleNamespace
from fleetps.observe.logs import set_up_logging
from fleetps.observe.relay import relayed
logs = Path(sys.argv[1])
job = SimpleNamespace(observe=SimpleNamespace(log_format="json"), run_dir=logs.parent)
set_up_logging("json", "worker-1")
with relayed(job, "worker-1"), relayed(job, "coordinator"):
    with (logs / "worker-1.log").open("a") as file:
        file.write("E1129 00:00:05.250000 4 a.cc:1] no server\\n")
        file.write("I1129 00:00:05.250000 4 x.cc:1] z\\n")
    (logs / "coordinator.log").write_text('{"level": "info", "role": "coordinator", '
        '"logger": "e", "message": "begun", "time": "2026-11-29T00:00:02+00:00", "event": "x"}\\n')
"""
    command = [sys.executable, "-c", program, str(logs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    records = sorted(map(json.loads, done.stdout.splitlines()), key=lambda r: str(r["role"]))
    assert records[0] == {
        "time": "2026-11-29T00:00:02+00:00", "level": "info", "role": "coordinator",
        "logger": "e", "message": "begun", "event": "x",
    }  # fmt: skip
    assert [records[1][key] for key in ("role", "logger", "level", "message")] == [
        "worker-1", "paddle", "error", "a.cc:1] no server",
    ]  # fmt: skip
    assert len(records) == 2
    with (tmp_path / "out").open("w") as out:
        subprocess.run(command, stdout=out, check=True)
    assert (tmp_path / "out").read_text() == ""
