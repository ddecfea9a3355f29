"""A job started by `fleetps launch`, watched and hurt from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import auc
import psutil

from fleet_config.errors import FleetError
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.reports import Status

WORKER, SERVER = "fleetps.training.worker", "fleetps.training.server"
COORDINATOR, AGENT = "fleetps.coordinator --job", "fleetps.main"
PATIENCE = 300.0
_MARK = "FLEETPS_BENCHMARK"
_KEY = "of-this-benchmark"


class Job:
    """`settings`: of the job file, over those of conf/quickstart.yaml; `output` is job.output."""

    def __init__(self, name: str, output: Path, settings: Mapping[str, object]) -> None:
        values = {**settings, "job.name": name, "job.output": output}
        self._command = [*auc.FLEETPS, "launch", "--config", "conf/quickstart.yaml"]
        self._command += [f"--set={key}={value}" for key, value in values.items()]
        self._output = output
        self.run = output / name
        self._mark = uuid.uuid4().hex
        self._others: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start it, or let it go on after all its processes were killed."""
        self._output.mkdir(parents=True, exist_ok=True)
        with (self._output / f"{self.run.name}.out").open("ab") as words:
            self._process = subprocess.Popen(
                self._command,
                cwd=auc.ROOT,
                env={**os.environ, "FLEETPS_TOKEN": _KEY, _MARK: self._mark},
                stdout=words,
                stderr=words,
                start_new_session=True,
            )

    def status(self) -> Status | None:
        """None while the coordinator can't be asked."""
        try:
            address = (self.run / "coordinator.address").read_text().strip()
            with CoordinatorClient(address, _KEY, deadline=1.0) as client:
                return client.status()
        except (FleetError, OSError):
            return None

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, what: str, true: Callable[[Status], bool]) -> Status:
        """Ask until it is so."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            status = self.status()
            if status is not None and true(status):
                return status
            if self.ended:
                sys.exit(f"the job ended while {what} was waited for: {self.exit_code(0)}")
            time.sleep(0.05)
        sys.exit(f"waited {PATIENCE:g} s for {what}")

    def exit_code(self, seconds: float) -> int | None:
        """None if it doesn't end in time."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        for other in self._others:
            other.wait(PATIENCE)
        return code

    def processes(self, *words: str, env: str = "") -> list[psutil.Process]:
        """All that live and have these words in their command lines, and `env` such as "A=1"."""
        name, _, value = env.partition("=")
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                environ = process.environ()
                if (
                    environ.get(_MARK) == self._mark
                    and process.status() != psutil.STATUS_ZOMBIE
                    and all(word in " ".join(process.cmdline()) for word in words)
                    and (not env or environ.get(name) == value)
                ):
                    found.append(process)
        return found

    def one(self, *words: str, env: str = "") -> psutil.Process | None:
        """One such process, if there is any at this moment."""
        return next(iter(self.processes(*words, env=env)), None)

    def replace(self, agent: psutil.Process, number: signal.Signals, seconds: float = 20.0) -> None:
        """End this agent; start another one, in its place, where the launcher doesn't.

        The launcher lets a worker leave that was asked to, and knows no agents but its own.
        """
        command, environ, ours = agent.cmdline(), agent.environ(), agent.ppid() == os.getpid()
        agent.send_signal(number)
        psutil.wait_procs([agent], seconds)
        left = environ.get("ROLE") == "WORKER" and number == signal.SIGTERM
        if left or ours:
            environ.pop("FLEETPS_INSTANCE", None)
            with (self._output / "others.out").open("ab") as words:
                process = subprocess.Popen(
                    command, cwd=auc.ROOT, env=environ, stdout=words, stderr=words
                )
            self._others = [other for other in self._others if other.poll() is None]
            self._others.append(process)

    def kill_all(self) -> None:
        """Every process at once; then the same command again."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()
        self._process.wait(PATIENCE)
        self.start()

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)
