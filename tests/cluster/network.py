"""Two hosts on one machine, joined by a cable that can be pulled: Linux network namespaces."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from running_job import Program

HERE, THERE = "10.77.0.1", "10.77.0.2"


class Network:
    """`here` and `there` are the processes that keep the two namespaces alive."""

    def __init__(self, here: int, there: int) -> None:
        self._here = here
        self._there = there

    def start(
        self, host: str, command: list[str], directory: Path, env: Mapping[str, str], label: str
    ) -> Program:
        """A program on HERE or THERE."""
        place = self._here if host == HERE else self._there
        return Program([*_inside(place), *command], directory, env, label)

    def pull(self) -> None:
        """Nothing gets from one host to the other."""
        _run(*_inside(self._there), "ip", "link", "set", "cable", "down")

    def plug(self) -> None:
        """As before."""
        _run(*_inside(self._there), "ip", "link", "set", "cable", "up")

    def cut(self, port: int) -> None:
        """What this port of THERE sends doesn't get to HERE; all else does."""
        _run(*_inside(self._there), "ip", "rule", "add", *_sent_by(port))

    def mend(self, port: int) -> None:
        """As before."""
        _run(*_inside(self._there), "ip", "rule", "del", *_sent_by(port))


def _sent_by(port: int) -> list[str]:
    return ["ipproto", "tcp", "sport", str(port), "blackhole"]


@contextmanager
def two_hosts() -> Iterator[Network]:
    """Skips the test where the kernel allows nobody but root to make any."""
    try:
        _run("unshare", "-rn", "ip", "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this kernel allows us no network of our own")
    up = "ip link set lo up; echo up; exec sleep 600"
    with ExitStack() as stack:
        here = stack.enter_context(_sleeper("unshare", "-rn", "sh", "-c", up))
        there = stack.enter_context(_sleeper(*_inside(here), "unshare", "-n", "sh", "-c", up))
        cable = ["type", "veth", "peer", "name", "cable", "netns", str(there)]
        _run(*_inside(here), "ip", "link", "add", "cable", *cable)
        for place, address in ((here, HERE), (there, THERE)):
            _run(*_inside(place), "ip", "address", "add", f"{address}/24", "dev", "cable")
            _run(*_inside(place), "ip", "link", "set", "cable", "up")
        yield Network(here, there)


def _inside(process: int) -> list[str]:
    return ["nsenter", "-t", str(process), "-U", "-n", "--preserve-credentials"]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _sleeper(*command: str) -> Iterator[int]:
    """The id of a process in namespaces of its own, once they are there."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sleeper:
        try:
            assert sleeper.stdout is not None
            assert sleeper.stdout.readline() == "up\n"
            yield sleeper.pid
        finally:
            sleeper.kill()
