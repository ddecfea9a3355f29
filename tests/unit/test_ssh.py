"""A job over ssh, without ssh: who runs where, what is sent, what is said."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from fleet_config.errors import UserError
from fleet_config.job import load_job
from fleet_config.roles import resolve_role
from fleetps.ssh.payload import packed
from fleetps.ssh.plan import placements
from fleetps.ssh.telling import job_line, overview, process_words
from fleetps.ssh.words import Answer, ProcessState

ROOT = Path(__file__).parents[2]
LEAST = "job: {name: x}\ndata: {path: d}\n"
TWO = [
    {"address": "a", "servers": 1, "workers": 2},
    {"address": "b", "port": 2222, "servers": 2, "workers": 1, "coordinator": True},
]


def placed(write, hosts: list[dict[str, object]] = TWO, servers: int = 3, workers: int = 3):
    sizes = [f"cluster.servers={servers}", f"cluster.workers={workers}"]
    job = load_job(write(LEAST), [*sizes, f"hosts={json.dumps(hosts)}"])
    return placements(job, "job.yaml", 7000, 6174)


def test_who_runs_where(write) -> None:
    first, second = placed(write)
    assert [p.name for p in first.processes] == ["server-0", "worker-0", "worker-1"]
    assert [p.name for p in second.processes] == [
        "coordinator",
        "server-1",
        "server-2",
        "worker-2",
    ]
    assert (first.coordinates, second.coordinates) == (False, True)
    assert (first.name, second.name) == ("a", "b:2222")


def test_every_process_finds_its_role_in_its_environment(write) -> None:
    for place in placed(write):
        for process in place.processes:
            role = resolve_role(process.env, own_address=lambda _: "10.0.0.9")
            kind, _, rank = process.name.partition("-")
            assert (role.kind, role.coordinator) == (kind, "b:7000")
            assert role.rank == (int(rank) if rank else None)
            if kind == "server":
                assert role.endpoint == f"10.0.0.9:{6174 + int(rank)}"


def test_without_a_mark_the_first_host_coordinates(write) -> None:
    hosts = [{"address": "a"}, {"address": "b", "servers": 1, "workers": 1}]
    first, second = placed(write, hosts, 1, 1)
    assert [p.name for p in first.processes] == ["coordinator"]
    assert second.processes[0].env["COORDINATOR"] == "a:7000"


@pytest.mark.parametrize(
    ("servers", "workers", "sentence"),
    [
        (1, 3, "hosts run 3 servers together but cluster.servers is 1; make them equal"),
        (3, 1, "hosts run 3 workers together but cluster.workers is 1; make them equal"),
    ],
)
def test_hosts_that_do_not_add_up(write, servers: int, workers: int, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        placed(write, servers=servers, workers=workers)
    assert str(caught.value) == f"job.yaml: {sentence}"


def test_a_job_without_hosts(write) -> None:
    with pytest.raises(UserError, match=r"job.yaml: hosts is missing; list the machines"):
        placed(write, [], 1, 1)


def names_in(archive: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {info.name for info in tar.getmembers() if info.isfile()}


def test_a_checkout_is_sent_without_what_python_makes() -> None:
    names = names_in(packed(ROOT))
    assert {"train.py", "fleetps/main.py", "fleet_config/job.py", "requirements.lock"} <= names
    assert "fleetps/coordinator/page/index.html" in names
    assert not any("__pycache__" in name for name in names)
    assert {name.partition("/")[0] for name in names} == {
        "train.py",
        "fleetps",
        "fleet_config",
        "requirements.lock",
        "pyproject.toml",
    }


def test_a_wheel_is_sent_as_what_it_holds(tmp_path: Path) -> None:
    wheel = tmp_path / "fleetps-1-py3-none-any.whl"
    files = {"fleetps/__init__.py": "x", "fleet_config/__init__.py": "", "fleetps-1/RECORD": ""}
    with zipfile.ZipFile(wheel, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    assert names_in(packed(wheel)) == set(files)


@pytest.mark.parametrize("kind", ["nothing", "text", "directory", "zip"])
def test_what_is_no_code(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "text":
        path.write_text("no code")
    elif kind == "directory":
        path.mkdir()
    elif kind == "zip":
        zipfile.ZipFile(path, "w").close()
    with pytest.raises(UserError, match=str(path)):
        packed(path)


SAID = {
    "runs (process 7)": {"running": True},
    "done": {"code": 0},
    "exit code 75: no room": {"code": 75, "last": "no room"},
    "stopped: as it was told": {"code": 143, "last": "as it was told"},
    "killed by SIGKILL (by hand, or by the kernel when memory ran out)": {"code": 137},
}


@pytest.mark.parametrize("words", SAID)
def test_how_a_process_is_doing(words: str) -> None:
    state = ProcessState.model_validate(
        {"name": "worker-0", "pid": 7, "running": False} | SAID[words]
    )
    assert process_words(state) == words


def test_what_status_shows(write) -> None:
    places = placed(write)
    runs = ProcessState(name="server-0", pid=7, running=True)
    old = ProcessState(name="worker-9", pid=8, running=False, code=0)
    lines = list(
        overview(places, {"hosts.0": Answer(processes=(runs, old))}, {"hosts.1": UserError("away")})
    )
    assert [line.split(maxsplit=1) for line in lines[:5]] == [
        ["a"],
        ["server-0", "runs (process 7)"],
        ["worker-0", "not started"],
        ["worker-1", "not started"],
        ["worker-9", "done"],
    ]
    assert lines[5] == "  b:2222: not reached"
    assert {line.split()[1] for line in lines[6:]} == {"unknown"}
    assert job_line([]) == "not started"
    assert job_line([Answer(processes=(old,))]) == "ended"
    assert job_line([Answer(processes=(runs,))]) == "the coordinator does not answer (yet)"
    assert job_line([Answer(result="epoch 1/1: AUC 0.7")]) == "done; epoch 1/1: AUC 0.7"
    assert job_line([], all_asked=False) == "unknown, as not all hosts can be asked"
