"""The coordinator as a child process of whoever hosts it.

The hosts: `fleetps launch`, the agent of server 0 where the environment lists the servers (Paddle's
launchers), and the agent of the coordinator role.
"""

import logging
import signal
import sys
import time
from collections.abc import Callable, Mapping

from fleet_config.errors import (
    EXIT_OK,
    EXIT_STOPPED,
    EXIT_USER,
    FleetError,
    Stopped,
    TryAgain,
    UserError,
)
from fleet_config.job import Job
from fleetps.agents.membership import any_present
from fleetps.agents.restarts import Restarts, crashed
from fleetps.coordinator.access import read_token
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.reports import Status
from fleetps.coordinator.runfiles import ADDRESS_FILE, only_coordinator
from fleetps.observe.logs import message_of
from fleetps.system.logtail import tail
from fleetps.system.process import Child, describe_exit, end_all
from fleetps.system.rundir import RunDirectory
from fleetps.system.signals import StopRequest

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
# It may have to read a large checkpoint first.
_START_SECONDS = 300.0
_CALL_SECONDS = 2.0
_HEAR_SECONDS = 1.5
# More than it gives its own open connections.
_END_SECONDS = 4.0


class HostedCoordinator:
    """Start it, watch it, and end it after everybody has heard how the job ended."""

    def __init__(self, job: Job, env: Mapping[str, str], *, stays: bool = False) -> None:
        """`stays`: it goes on serving when the job is done."""
        self._job = job
        self._stays = stays
        self._run = RunDirectory(job.run_dir)
        self._env = env
        self._child: Child | None = None
        self._client: CoordinatorClient | None = None
        self._restarts = Restarts(job.cluster.restarts)

    @property
    def client(self) -> CoordinatorClient:
        if self._client is None:
            raise RuntimeError("the coordinator has not been started")
        return self._client

    @property
    def address(self) -> str:
        return self.client.address

    def start(self, bind: str, *, again: bool = False, restarted: bool = False) -> None:
        """Returns when it answers. It goes on with an unfinished run of the same job.

        `again`: all other processes of that run have ended too.
        `restarted`: none of them has, so that run is this one, however it may have ended.
        """
        self._run.create()
        address_file = self._run.path / ADDRESS_FILE
        # The files of another one that works there, in another container perhaps, are left alone.
        with self._run.writing(), only_coordinator(self._run.path):
            self._run.job_file.write_text(self._job.model_dump_json(indent=2), encoding="utf-8")
            address_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "fleetps.coordinator", "--job", str(self._run.job_file)]
        flags = {"--again": again, "--restarted": restarted, "--stay": self._stays}
        command += ["--bind", bind, *(flag for flag, given in flags.items() if given)]
        log = self._run.logs / "coordinator.log"
        child = self._child = Child("coordinator", command, log=log, env=self._env)
        self._restarts.began()
        deadline = time.monotonic() + _START_SECONDS
        while not address_file.exists():
            if child.wait(_POLL_SECONDS) is not None:
                raise self.death()
            if time.monotonic() > deadline:
                raise TryAgain(
                    f"the coordinator did not start within {_START_SECONDS:.0f} s; see {log}"
                )
        address = address_file.read_text(encoding="utf-8").strip()
        if self._client is None:
            token = read_token(self._env)
            self._client = CoordinatorClient(address, token, deadline=_CALL_SECONDS)
        _log.info("the coordinator listens at %s", address)

    def keep(self) -> None:
        """Start it again where it was, if it was killed or crashed; raise if that is no use."""
        code = self._child.poll() if self._child is not None else None
        if not crashed(code) or code == -signal.SIGTERM:
            return self.check()
        self._restarts.died()
        if not self._restarts.left:
            return self.check()
        _log.warning("%s; it is started again", self.death())
        self._restarts.again()
        self.start(self.address, restarted=True)
        return None

    def finished(self) -> bool:
        """It has ended because the job is done."""
        return self._child is not None and self._child.poll() == EXIT_OK

    def check(self) -> None:
        """Raise if it has ended."""
        if self._child is not None and self._child.poll() is not None:
            raise self.death()

    def death(self) -> FleetError:
        """Why it ended by itself: its own last line, where it had time to write one."""
        child = self._child
        code = child.poll() if child is not None else None
        if child is None or code is None:
            return TryAgain("the coordinator does not run")
        if code in (EXIT_STOPPED, -signal.SIGTERM):
            return Stopped("the coordinator was asked to stop (SIGTERM)")
        last = tail(child.log, 1)
        words = message_of(last[0]) if code > 0 and last else describe_exit(code)
        if code > 0 and self._run.is_full():
            words = f"the disk that holds {self._run.path} is full; make room, then start again"
        happened = "ended" if self._client is not None else "could not start"
        sentence = f"the coordinator {happened}: {words}"
        return UserError(sentence) if code == EXIT_USER else TryAgain(sentence)

    def end(self, patience: float, stop: StopRequest) -> None:
        """Wait until every live member has heard the end and left; then end it."""
        child = self._child
        if child is None:
            return
        start = time.monotonic()
        while child.poll() is None and (seconds := time.monotonic() - start) < patience:
            status = self._status()
            # A worker that has said that it is done still asks how the job ended.
            heard = seconds >= min(patience, _HEAR_SECONDS)
            if status is None or (heard and not self._anybody_in(status)):
                break
            time.sleep(2 * _POLL_SECONDS)
        self.let_copy(stop)
        self._child = None
        if self._client is not None:
            self._client.close()  # it lets open connections finish, ours too
        end_all([child], _END_SECONDS)

    def let_copy(self, stop: StopRequest, tick: Callable[[], object] = lambda: None) -> None:
        """Give the last checkpoint the time to reach the mirror; `tick` is called meanwhile.

        If the job is done, that is until a signal comes; if it stops, the coordinator knows.
        """
        deadline = time.monotonic() + self._job.cluster.deadlines.upkeep
        child = self._child if self._job.checkpoint.has_upkeep else None
        while child is not None and child.poll() is None and time.monotonic() < deadline:
            status = self._status()
            tick()
            if status is None or status.job not in ("done", "stopping"):
                return
            hurry = stop.hurry() if status.job == "stopping" else stop.signal is not None
            if hurry or not status.checkpoint.upkeep:
                return
            time.sleep(2 * _POLL_SECONDS)

    def _anybody_in(self, status: Status) -> bool:
        heartbeat = self._job.cluster.heartbeat
        return any_present(status.workers, heartbeat) or any_present(status.servers, heartbeat)

    def _status(self) -> Status | None:
        try:
            return self._client.status() if self._client is not None else None
        except FleetError as error:
            _log.debug("no status from the coordinator: %s", error)
            return None
