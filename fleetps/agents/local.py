"""Training in one process without servers: the agent of the `local` role."""

import logging
import os
import sys
import time
from pathlib import Path

from fleet_config.errors import EXIT_STOPPED, EXIT_USER, Stopped, TryAgain, UserError
from fleet_config.job import Job
from fleetps.agents.child_dir import ChildDirectory
from fleetps.agents.child_env import local_environment
from fleetps.agents.worker import batch_seconds
from fleetps.coordinator.reports import Status
from fleetps.observe.display import Display
from fleetps.system.logtail import tail
from fleetps.system.process import Child, end_all
from fleetps.system.rundir import RunDirectory
from fleetps.system.signals import StopRequest

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_STATUS = "status.json"


class LocalAgent:
    """Runs the worker program with the coordinator's logic inside it."""

    def __init__(self, job: Job, display: Display, stop: StopRequest) -> None:
        self._job = job
        self._display = display
        self._stop = stop
        self._run = RunDirectory(job.run_dir)
        self._work = ChildDirectory(self._run.work("local-0"))

    def run(self) -> None:
        self._work.prepare(self._job)
        child = Child(
            "local",
            [sys.executable, "-m", "fleetps.training.worker"],
            log=self._run.logs / "local-0.log",
            env=local_environment(os.environ),
            cwd=self._work.path,
        )
        _log.info("started Paddle as process %d; its output: %s", child.pid, child.log)
        try:
            self._end(child, self._watch(child))
        finally:
            child.kill()

    def _watch(self, child: Child) -> int:
        """The exit code, once the child has ended by itself or on request."""
        while (code := child.poll()) is None:
            if self._stop.signal is not None:
                end_all([child], batch_seconds(self._job))
                raise Stopped(f"stopped by {self._stop.reason}")
            self._show()
            time.sleep(_POLL_SECONDS)
        return code

    def _end(self, child: Child, code: int) -> None:
        status = self._show()
        if code == 0:
            if status is not None:
                self._display.results(status)
            return
        reason = self._work.reason(code, child.log)
        if code == EXIT_USER:
            raise UserError(reason)
        if code == EXIT_STOPPED:
            raise Stopped(reason)
        for line in tail(child.log):
            self._display.note(f"  {line}")
        raise TryAgain(f"{reason}; its log is {child.log}")

    def _show(self) -> Status | None:
        status = read_status(self._work.path / _STATUS)
        if status is not None:
            self._display.update(status)
        return status


def read_status(file: Path) -> Status | None:
    """The state that the child last wrote, if it has."""
    try:
        return Status.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None
