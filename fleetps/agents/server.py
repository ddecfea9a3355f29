"""The agent of a server: it watches the port, and ends the server when nobody needs it any more."""

import logging
import signal
import time
from typing import ClassVar

from fleet_config.endpoints import parse_endpoint
from fleet_config.errors import EXIT_USER, FleetError, Stopped, TryAgain
from fleet_config.job import Job
from fleet_config.roles import Role
from fleetps.agents.child_env import Place
from fleetps.agents.load import Load
from fleetps.agents.member import Member
from fleetps.agents.membership import any_present
from fleetps.agents.server_port import ServerPort
from fleetps.coordinator.reports import MemberRole
from fleetps.system.ports import UnresolvedHost, check_free
from fleetps.system.process import Child, end_all

_log = logging.getLogger(__name__)

_DNS_SECONDS = 1.0
_GRACEFUL_SECONDS = 3.0
_ASK_SECONDS = 0.3
# For its process, when this server leaves after a checkpoint.
_LEAVING_SECONDS = 1.0
_PORT_SECONDS = 5.0


def check_server_place(job: Job, role: Role) -> None:
    """Return when the server's own address is one of this machine and its port is free.

    Raises:
        UserError: it is not of this machine.
        TryAgain: it can't be resolved or used, also after a while.
    """
    host, port = parse_endpoint(role.endpoint or "", "the server's own address")
    since = time.monotonic()
    deadline = since + job.cluster.deadlines.rendezvous
    while True:
        try:
            return check_free(host, port)
        except UnresolvedHost as error:
            # In a cluster a name may appear a while after the process that it names.
            if time.monotonic() > deadline:
                raise
            _log.warning("%s", error)
            time.sleep(_DNS_SECONDS)
        except TryAgain:
            # A server that was there before may just be ending; a large one takes its time.
            if time.monotonic() > since + _PORT_SECONDS:
                raise
            time.sleep(_ASK_SECONDS)


class ServerAgent(Member):
    kind: ClassVar[MemberRole] = "server"
    _port: ServerPort
    _load: Load

    def check_place(self) -> None:
        check_server_place(self.job, self.role)

    def place(self) -> Place:
        endpoint = parse_endpoint(self._endpoint(), "the server's endpoint")
        return Place(
            kind=self.kind,
            rank=self.membership.rank,
            host=endpoint.host,
            port=str(endpoint.port),
            servers=self.membership.servers,
            workers=self.job.cluster.workers,
        )

    def follows(self, code: int) -> bool:
        """The other way round: when a server dies, others do."""
        return code not in (EXIT_USER, -signal.SIGKILL)

    def starts_again(self, code: int) -> bool:
        """In a new generation, of which the coordinator decides how many there may be."""
        return code != EXIT_USER

    def started(self, child: Child) -> None:
        deadlines = self.job.cluster.deadlines
        self._port = ServerPort(self._endpoint(), deadlines.server_start, deadlines.step)
        self._load = Load(self.membership, child.pid, self._rows)

    def watch(self) -> None:
        if self._port.check():
            self.membership.say("serving")
        self._load.tell()

    def _rows(self) -> dict[str, float]:
        counts = {
            name: self._port.rows(table_id)
            for name, table_id in self.child_directory().tables().items()
        }
        told = {f"rows.{name}": rows for name, rows in counts.items() if rows is not None}
        return {**told, "silent": self._port.silence()}

    def finish(self, child: Child) -> None:
        if child.poll() is None and self._port.ask_to_stop():
            child.wait(_GRACEFUL_SECONDS)
        end_all([child], _GRACEFUL_SECONDS)

    def wind_down(self, child: Child) -> None:
        """The workers push what they have learnt; then the server may go."""
        deadline = time.monotonic() + self.job.cluster.deadlines.stop
        while child.poll() is None and time.monotonic() < deadline and self._workers_are_there():
            time.sleep(_ASK_SECONDS)
        self.finish(child)

    def leave_job(self, child: Child | None) -> None:
        """What it holds is lost, so a checkpoint is taken first, if there is time.

        Then the job begins again from that, with who takes this server's place.
        """
        reason = f"{self.membership.name} was asked to stop ({self._stop.reason})"
        if child is not None:
            self.membership.wait_for_checkpoint(reason)
            end_all([child], _LEAVING_SECONDS)
        raise Stopped(reason)

    def _workers_are_there(self) -> bool:
        try:
            workers = self.membership.client.status().workers
        except FleetError as error:
            _log.debug("no status: %s", error)
            return False
        return any_present(workers, self.job.cluster.heartbeat)

    def _endpoint(self) -> str:
        """As it stands in the list: Paddle looks for exactly this text there."""
        return self.membership.servers[self.membership.rank]
