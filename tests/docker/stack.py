"""One project of Compose: the quickstart job, small, with its files where a test sees them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from docker.models.containers import Container
from engine import Engine
from isolation import free_port

ROOT = Path(__file__).resolve().parents[2]
OWNER = 10001
# Compose v2 if it is there; the other one has to be able to read the same files.
COMPOSES = (("docker", "compose"), ("docker-compose",))
# All limits are for machines that have much else to do.
_SECONDS = 300.0
_OPTIONS = (
    "--set data.synthetic.rows=200_000 --set data.synthetic.test_rows=40_000 "
    "--set observe.progress_seconds=2 --set cluster.deadlines.rendezvous=300 "
    "--set cluster.deadlines.server_start=300 --set cluster.deadlines.first_step=300"
)


def composes(engine: Engine) -> list[list[str]]:
    """Every Compose that is installed."""
    docker = engine.environment.get("DOCKER", "docker")
    named = [[docker if word == "docker" else word for word in words] for words in COMPOSES]
    return [words for words in named if _runs([*words, "version"])]


def _runs(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class Stack:
    def __init__(self, engine: Engine, name: str, data: Path, runs: Path) -> None:
        self.engine = engine
        self.project = re.sub(r"[^a-z0-9]", "", name.lower())[-30:]
        self.runs = runs
        self.files: list[str] = []
        self.port = free_port()
        self.options = [_OPTIONS]
        self.patience = 5
        self.more: dict[str, str] = {}  # variables of docker-compose.yml
        self._data = data
        self._http = httpx.Client(timeout=5, trust_env=False)
        self._token = ""
        runs.mkdir()
        os.chown(runs, OWNER, OWNER)
        self._compose = composes(engine)[0]

    @property
    def environment(self) -> dict[str, str]:
        return {
            **self.engine.environment,
            "DATA": str(self._data),
            "RUNS": str(self.runs),
            "PORT": str(self.port),
            "OPTIONS": " ".join(self.options),
            "LOG_FORMAT": "text",
            "PATIENCE": str(self.patience),
            "COMPOSE_PROJECT_NAME": self.project,
            "COMPOSE_FILE": ":".join(self.files or ["docker-compose.yml"]),
            **self.more,
        }

    # -- Compose --

    def use(self, compose: list[str]) -> None:
        self._compose = compose

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Compose, which has ended after that."""
        process = subprocess.Popen(
            [*self._compose, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            # `docker compose` is two processes, and the second one has our pipe too.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def compose(self, *arguments: str, code: int = 0) -> str:
        """Run Compose to its end; its output."""
        with self.running(*arguments) as process:
            return self.ended(process, code)

    def ended(self, process: subprocess.Popen[str], code: int = 0) -> str:
        """Wait until it has ended so; its output."""
        try:
            output, _ = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{process.args} did not end:\n{self.story()}") from None
        assert process.returncode == code, f"{output[-3000:]}\n{self.story()}"
        return output

    def up(self, *arguments: str, profile: str = "") -> None:
        profiles = ["--profile", profile] if profile else []
        self.compose(*profiles, "up", "--detach", "--no-build", *arguments)

    def remove(self) -> None:
        """Leave nothing."""
        self._http.close()
        profiles = [f"--profile={name}" for name in ("done", "monitoring", "tls")]
        self.compose(*profiles, "down", "--volumes", "--timeout", "0")
        assert self.containers() == []

    # -- what is there --

    def containers(self, service: str = "", *, all_states: bool = True) -> list[Container]:
        labels = [f"com.docker.compose.project={self.project}"]
        if service:
            labels.append(f"com.docker.compose.service={service}")
        found = self.engine.client.containers.list(
            all=all_states, filters={"label": labels}, ignore_removed=True
        )
        return sorted(found, key=lambda one: int(one.labels["com.docker.compose.container-number"]))

    def codes(self) -> dict[str, int]:
        """How each container ended; only those that have."""
        return {
            one.name: one.attrs["State"]["ExitCode"]
            for one in self.containers()
            if one.status == "exited"
        }

    def story(self) -> str:
        """For a failure: the last lines of everybody."""
        parts = [
            f"--- {one.name} ({one.status}):\n{one.logs(tail=15).decode(errors='replace')}"
            for one in self.containers()
        ]
        return "\n".join(parts)

    # -- the job --

    def status(self) -> dict[str, Any] | None:
        """What the coordinator says on its published port; None: nothing."""
        try:
            self._token = self._token or self._read_token()
            answer = self._http.get(
                f"http://127.0.0.1:{self.port}/status",
                headers={"Authorization": f"Bearer {self._token}"},
            )
            return dict(answer.json()) if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, IndexError, OSError):
            return None

    def _read_token(self) -> str:
        mounts = self.containers("coordinator")[0].attrs["Mounts"]
        source = next(m["Source"] for m in mounts if m["Destination"] == "/run/secrets")
        return (Path(source) / "fleetps_token").read_text().strip()

    def wait(self, what: str, true: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Until the status is so; the status."""
        deadline = time.monotonic() + _SECONDS
        status = None
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None and true(status):
                return status
            time.sleep(0.2)
        raise AssertionError(f"not {what} after {_SECONDS:.0f} s: {status}\n{self.story()}")

    def until(self, true: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not true():
            assert time.monotonic() < deadline, f"no {what}:\n{self.story()}"
            time.sleep(0.3)

    def wait_for_log(self, service: str, text: str) -> None:
        found = self.containers
        self.until(lambda: any(text in one.logs().decode() for one in found(service)), repr(text))

    def wait_for_end(self) -> None:
        """Until no container of the job runs any more, and all ended with 0."""
        everybody = self.containers
        self.until(lambda: all(one.status == "exited" for one in everybody()), "end")
        failed = {name: code for name, code in self.codes().items() if code}
        assert not failed, f"{failed}\n{self.story()}"

    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.runs / "quickstart" / "result.json").read_text()))
