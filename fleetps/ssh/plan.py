"""Who runs where: the processes of a job, each with its host and its role in the environment."""

from __future__ import annotations

from dataclasses import dataclass

from fleet_config.endpoints import Endpoint
from fleet_config.errors import UserError
from fleet_config.job import Job
from fleet_config.roles import DEFAULT_SERVER_PORT
from fleet_config.sections import Host
from fleetps.ssh.words import COORDINATOR, Wanted

DEFAULT_COORDINATOR_PORT = 7000


@dataclass(frozen=True)
class Placement:
    """A host and what runs on it."""

    key: str  # `hosts.1`, as in the job file
    host: Host
    processes: tuple[Wanted, ...]

    @property
    def name(self) -> str:
        """As people find it in the job file; the port where it isn't ssh's usual one."""
        if self.host.port == 22:
            return self.host.address
        return str(Endpoint(self.host.address, self.host.port))

    @property
    def coordinates(self) -> bool:
        return any(process.name == COORDINATOR for process in self.processes)


def placements(
    job: Job,
    config: str,
    coordinator_port: int = DEFAULT_COORDINATOR_PORT,
    server_port: int = DEFAULT_SERVER_PORT,
) -> list[Placement]:
    """All processes by host, in the order of the job file.

    Server n of the job listens at `server_port` + n, whatever host it is on: hosts may be
    directories of one machine.

    Raises:
        UserError: there are no hosts, or they run another number of servers or workers.
    """
    _check_sums(job, config)
    first = next((host for host in job.hosts if host.coordinator), job.hosts[0])
    address = str(Endpoint(first.address, coordinator_port))
    servers = workers = 0
    found = []
    for index, host in enumerate(job.hosts):
        processes = [Wanted.coordinator(address)] if host is first else []
        processes += [
            Wanted.server(address, rank, server_port + rank)
            for rank in range(servers, servers + host.servers)
        ]
        processes += [
            Wanted.worker(address, rank) for rank in range(workers, workers + host.workers)
        ]
        servers, workers = servers + host.servers, workers + host.workers
        found.append(Placement(f"hosts.{index}", host, tuple(processes)))
    return found


def _check_sums(job: Job, config: str) -> None:
    if not job.hosts:
        raise UserError(
            f"{config}: hosts is missing; list the machines that ssh reaches, such as "
            "hosts: [{address: 10.0.0.1, servers: 1, workers: 1}]"
        )
    for kind in ("servers", "workers"):
        total, wanted = sum(getattr(host, kind) for host in job.hosts), getattr(job.cluster, kind)
        if total != wanted:
            raise UserError(
                f"{config}: hosts run {total} {kind} together but cluster.{kind} is {wanted}; "
                "make them equal"
            )
