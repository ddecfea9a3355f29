"""scripts/ssh_cluster.py against real sshd processes: two hosts that are one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from isolation import free_port, free_ports
from running_job import ROOT, START_SECONDS, job_file, nobody_left, processes, wait_until
from sshd import Sshd, make_key

pytest.importorskip("asyncssh", reason="the extra `ssh` is not installed: pip install asyncssh")
pytestmark = pytest.mark.cluster

SCRIPT = ROOT / "scripts" / "ssh_cluster.py"
_COMMAND_SECONDS = 240.0


class Hosts:
    """Two sshd, a job file that lists them, and the command."""

    def __init__(self, directory: Path, data: Path, epochs: int = 1) -> None:
        self._directory = directory
        self._home = directory / "home"
        (self._home / ".ssh").mkdir(parents=True)
        self.known_hosts = self._home / ".ssh" / "known_hosts"
        self.key = make_key(directory / "key")
        self.sshd = [Sshd(directory / f"sshd-{n}", self.key) for n in (0, 1)]
        self.known_hosts.write_text("".join(sshd.known_hosts_line for sshd in self.sshd))
        self.there = [directory / f"host-{n}" for n in (0, 1)]
        self.config = job_file(directory, data, servers=2, workers=2, epochs=epochs)
        text = self.config.read_text().replace(str(directory / "runs"), "runs")
        self.config.write_text(text)
        self.write_hosts(self.key)
        for sshd in self.sshd:
            sshd.start()

    def write_hosts(self, key: Path, **changes: object) -> None:
        hosts = [
            {
                "address": "127.0.0.1",
                "port": sshd.port,
                "user": sshd.user,
                "key": str(key),
                "servers": 1,
                "workers": 1,
                "directory": str(there),
                "python": sys.executable,
                **changes,
            }
            for sshd, there in zip(self.sshd, self.there, strict=True)
        ]
        text = self.config.read_text().partition("hosts:")[0]
        self.config.write_text(f"{text}hosts: {json.dumps(hosts)}\n")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command in a process of its own, with a home of its own."""
        kept = {name: v for name, v in os.environ.items() if name != "SSH_AUTH_SOCK"}
        return subprocess.run(
            [sys.executable, str(SCRIPT), "--config", str(self.config), *arguments],
            cwd=self._directory,
            env={**kept, "HOME": str(self._home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )

    def good(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def bad(self, code: int, *arguments: str) -> str:
        """What it complains of; a traceback is no sentence."""
        done = self.run(*arguments)
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stderr

    @property
    def names(self) -> list[str]:
        return [f"127.0.0.1:{sshd.port}" for sshd in self.sshd]


def port_options() -> list[str]:
    """Options of start that name ports which are free at this moment: a server has the next too."""
    first, second, coordinator = free_ports(3)
    while second != first + 1:
        first, second = second, free_port()
    return ["--coordinator-port", str(coordinator), "--server-port", str(first)]


def nobody_left_but(hosts: Hosts) -> None:
    """Nothing of the job; and of sshd, nothing once it was ended."""
    assert not processes("fleetps")
    for sshd in hosts.sshd:
        sshd.kill()
    nobody_left()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[Hosts]]:
    """Whatever the test does, no sshd outlives it."""
    hosts: list[Hosts] = []
    yield hosts
    for one in hosts:
        for sshd in one.sshd:
            sshd.kill()


def test_a_job_on_two_hosts(made: list[Hosts], tmp_path: Path, small_data: Path) -> None:
    hosts = Hosts(tmp_path, small_data)
    made.append(hosts)
    assert "there is no code" in hosts.bad(2, "start")
    hosts.good("sync")
    assert hosts.good("status").startswith("job: not started")

    started = hosts.good("start", *port_options())
    assert f"{hosts.names[0]}: coordinator, server-0, worker-0" in started
    assert f"{hosts.names[1]}: server-1, worker-1" in started
    tokens = [there / "runs" / "job" / "coordinator.token" for there in hosts.there]
    assert {file.stat().st_mode & 0o777 for file in tokens} == {0o600}
    token = tokens[0].read_text().strip()
    assert len(token) > 20
    assert {file.read_text().strip() for file in tokens} == {token}
    assert not processes(token)

    wait_until(lambda: not processes("fleetps.main"), START_SECONDS, "the job's end")
    seen = hosts.good("status")
    assert seen.startswith("job: done; epoch 1/1: AUC 0.")
    lines = [line.split() for line in seen.splitlines()]
    for name in ("coordinator", "server-0", "server-1", "worker-0", "worker-1"):
        assert [name, "done"] in lines
    result = json.loads((hosts.there[0] / "runs" / "job" / "result.json").read_text())
    assert result["rows"] == 20_000
    assert "Z worker-1 " in hosts.good("logs", "--role", "worker", "--rank", "1", "--follow")

    assert "nothing runs on 2 hosts" in hosts.good("stop")
    assert not any(file.exists() for file in tokens)
    nobody_left_but(hosts)


def test_a_host_that_is_lost_and_a_job_that_is_stopped(
    made: list[Hosts], tmp_path: Path, small_data: Path
) -> None:
    hosts = Hosts(tmp_path, small_data, epochs=500)
    made.append(hosts)
    hosts.good("sync")
    ports = port_options()
    hosts.good("start", *ports)
    running = {process.pid for process in processes("fleetps.main")}
    assert "give its --coordinator-port" in hosts.bad(2, "start", "--coordinator-port", "1")
    again = hosts.good("start", *ports)
    assert f"{hosts.names[1]}: server-1 (ran already), worker-1 (ran already)" in again
    assert {process.pid for process in processes("fleetps.main")} == running
    assert "would find other code" in hosts.bad(2, "sync")

    hosts.sshd[1].kill()
    lost = f"host {hosts.names[1]} can't be reached: nothing listens on port {hosts.sshd[1].port}"
    done = hosts.run("status")
    assert done.returncode == 75
    assert lost in done.stderr
    assert "/500 " in done.stdout.splitlines()[0]
    assert f"  {hosts.names[1]}: not reached" in done.stdout

    # The coordinator tells those whom nobody else can.
    sentence = hosts.bad(75, "stop")
    assert lost in sentence
    assert "the coordinator has told its processes to end" in sentence
    wait_until(lambda: not processes("fleetps"), 30, "the end of the job")
    hosts.sshd[1].start()
    seen = hosts.good("status")
    assert seen.count("stopped: stopped by ssh_cluster.py stop") == 5
    assert "nothing runs on 2 hosts" in hosts.good("stop")
    nobody_left_but(hosts)


def test_whom_ssh_trusts(made: list[Hosts], tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, tmp_path)
    made.append(hosts)
    true = hosts.known_hosts.read_text()
    hosts.known_hosts.unlink()
    sentence = hosts.bad(2, "sync")
    for name in hosts.names:
        assert f"host {name} has an unknown host key: ssh-ed25519 SHA256:" in sentence
    assert "--accept-new" in sentence
    assert not hosts.known_hosts.exists()
    assert not hosts.there[0].exists()

    hosts.good("--accept-new", "sync")
    assert sorted(hosts.known_hosts.read_text().splitlines()) == sorted(true.splitlines())
    assert hosts.good("status").startswith("job: not started")

    ours, other = true.splitlines()
    forged = (make_key(tmp_path / "forged").with_suffix(".pub")).read_text().split()[1]
    hosts.known_hosts.write_text(f"{ours}\n{other.rpartition(' ')[0]} {forged}\n")
    sentence = hosts.bad(2, "--accept-new", "status")
    assert f"host {hosts.names[1]} has another host key" in sentence
    assert f"ssh-keygen -R '[127.0.0.1]:{hosts.sshd[1].port}'" in sentence
    assert forged in hosts.known_hosts.read_text()


def test_hosts_that_can_not_be_used(made: list[Hosts], tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, tmp_path)
    made.append(hosts)
    stranger = make_key(tmp_path / "stranger")
    hosts.write_hosts(stranger)
    sentence = hosts.bad(2, "sync")
    assert f"lets user {hosts.sshd[0].user} not in with the key {stranger}" in sentence
    assert "hosts.1.key" in sentence
    hosts.write_hosts(tmp_path / "nowhere")
    assert "hosts.0.key: " in hosts.bad(2, "status")

    hosts.write_hosts(hosts.key, python=str(tmp_path / "no-python"))
    assert "its Python can't run the code: " in hosts.bad(2, "sync")
    hosts.write_hosts(hosts.key, directory="/proc/here")
    assert "the code can't be put there: " in hosts.bad(2, "sync", "--code", str(ROOT))

    hosts.write_hosts(hosts.key)
    hosts.good("sync")
    hosts.sshd[1].kill()
    assert f"host {hosts.names[1]} can't be reached: nothing listens" in hosts.bad(75, "start")
    assert not processes("fleetps.main")
    nobody_left_but(hosts)


def test_a_start_that_fails(made: list[Hosts], tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, tmp_path / "no-data")
    made.append(hosts)
    hosts.good("sync")
    sentence = hosts.bad(2, "start", *port_options())
    assert f"host {hosts.names[0]}: coordinator: exit code 2: " in sentence
    assert "no-data" in sentence
    assert "coordinator  exit code 2: " in hosts.good("status")
    assert "nothing runs on 2 hosts" in hosts.good("stop")
    nobody_left_but(hosts)
