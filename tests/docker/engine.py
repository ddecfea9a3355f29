"""A Docker engine: the one that answers, or one of our own with a directory of its own.

python tests/docker/engine.py COMMAND...     with an engine, which all tests of COMMAND share
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker.errors import DockerException, ImageNotFound

import docker

_START_SECONDS = 60.0
_END_SECONDS = 60.0


@dataclass(frozen=True)
class Engine:
    client: docker.DockerClient
    environment: dict[str, str]

    def has(self, image: str) -> bool:
        try:
            self.client.images.get(image)
        except ImageNotFound:
            return False
        return True


@contextmanager
def find_or_start() -> Iterator[Engine | str]:
    """The engine, or the reason why there is none to test with."""
    if os.geteuid() != 0:
        yield "only root may start a Docker engine, and give directories to the containers' user"
        return
    try:
        client = docker.from_env()
        client.ping()
    except DockerException:
        pass
    else:
        yield Engine(client, environment_for(os.environ.get("DOCKER_HOST", "")))
        return
    if shutil.which("dockerd") is None:
        yield "no Docker engine answers, and dockerd isn't installed: tests/docker/prepare.sh"
    else:
        with _started() as engine:
            yield engine


def environment_for(host: str) -> dict[str, str]:
    """Of the command line's tools. Debian's own docker comes first: it has BuildKit built in."""
    program = {"DOCKER": "/usr/bin/docker"} if Path("/usr/bin/docker").exists() else {}
    return {**os.environ, **({"DOCKER_HOST": host} if host else {}), **program}


@contextmanager
def _started() -> Iterator[Engine]:
    # Not under pytest's long paths: a socket's may have 108 characters.
    directory = Path(tempfile.mkdtemp(prefix="fleetps-engine-"))
    host = f"unix://{directory}/docker.sock"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                # It ends when this process does, however that happens.
                *("setpriv", "--pdeathsig", "TERM"),
                "dockerd",
                f"--data-root={directory}/data",
                f"--exec-root={directory}/exec",
                f"--host={host}",
                f"--pidfile={directory}/pid",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while (client := _client_of(host)) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                end = (directory / "log").read_text()[-2000:]
                yield f"dockerd can't be started here: {end}"
                return
            time.sleep(0.2)
        yield Engine(client, environment_for(host))
    finally:
        _end(process)
        for namespace in directory.glob("exec/netns/*"):  # it leaves one mounted
            subprocess.run(["umount", namespace], check=False, capture_output=True)  # noqa: S607
        shutil.rmtree(directory, ignore_errors=True)


def _client_of(host: str) -> docker.DockerClient | None:
    """None: nothing answers there."""
    try:
        return docker.DockerClient(base_url=host, timeout=120)  # it asks for the version
    except (DockerException, OSError):
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """With everything that it has started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(command: list[str]) -> int:
    """Run the command with an engine, or as it is where there is none; its exit code."""
    with find_or_start() as found:
        if isinstance(found, str):
            sys.stderr.write(f"without an engine: {found}\n")
            return subprocess.run(command, check=False).returncode
        return subprocess.run(command, check=False, env=found.environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
