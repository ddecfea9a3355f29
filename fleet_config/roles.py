"""What this process is: server, worker, coordinator or local, found in the environment.

docs/environment.md describes the variables; environment.py reads them.
"""

import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fleet_config.endpoints import Endpoint, coordinator_endpoint, parse_endpoint
from fleet_config.environment import LAUNCHER_VARIABLES, Claim, claims
from fleet_config.errors import UserError

Kind: TypeAlias = Literal["server", "worker", "coordinator", "local"]

DEFAULT_SERVER_PORT = 6174
# Set by so many tools for so many ends that they say nothing where no role is named.
_COMMON = {"host", "port", "worker_count", "worker_rank", "server_rank"}


@dataclass(frozen=True)
class Role:
    """The part that this process plays, and whom it has to know."""

    kind: Kind
    # None: the coordinator gives the rank.
    rank: int | None = None
    # All in order of rank, "host:port"; empty: they come from the coordinator.
    servers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    worker_count: int | None = None
    # A server's and a coordinator's own host:port, a worker's host where it is known.
    endpoint: str | None = None
    coordinator: str | None = None
    # For a coordinator: names that have an address for each server, for each worker.
    servers_at: str | None = None
    workers_at: str | None = None
    # Server 0 of a static list starts the coordinator, where no other one is named.
    hosts_coordinator: bool = False
    # What said so, for messages: "ROLE=SERVER".
    source: str = "no role in the environment"

    @property
    def coordinator_beside_server_0(self) -> bool:
        """Whether the coordinator's address follows from a static list of servers."""
        return bool(self.servers) and self.coordinator == coordinator_endpoint(self.servers[0])


class _Claims:
    """The claims by what they are about; those that disagree are refused."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._by_topic: dict[str, Claim] = {}
        for claim in claims(environ):
            first = self._by_topic.setdefault(claim.about, claim)
            if first.value != claim.value:
                raise UserError(f"{first.says} and {claim.says} disagree; unset one of them")

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def value(self, topic: str, default: Any = None) -> Any:
        claim = self._by_topic.get(topic)
        return default if claim is None else claim.value

    def says(self, topic: str) -> str:
        return self._by_topic[topic].says

    def telling(self) -> list[Claim]:
        """Those that make no sense without a role."""
        return [claim for claim in self._by_topic.values() if claim.about not in _COMMON]


def resolve_role(
    environ: Mapping[str, str], own_address: Callable[[str], str] | None = None
) -> Role:
    """The role of this process.

    `own_address(coordinator)` finds the address under which others reach this machine; it is
    asked only for a server that says neither its endpoint nor its host.
    """
    known = _Claims(environ)
    if "kind" not in known:
        _refuse_signs_of_a_cluster(environ, known)
        return Role("local")
    _check_counts(known)
    match known.value("kind"):
        case "coordinator":
            return _coordinator(known)
        case "server":
            return _server(known, own_address or _own_address)
        case _:
            return _worker(known)


def _refuse_signs_of_a_cluster(environ: Mapping[str, str], known: _Claims) -> None:
    for claim in known.telling():
        raise UserError(
            f"{claim.says} is set but no role is; set ROLE=SERVER, WORKER or COORDINATOR, "
            "or unset it to train locally"
        )
    for name in LAUNCHER_VARIABLES:
        if environ.get(name):
            raise UserError(
                f"{name}={environ[name]} is set but TRAINING_ROLE is not; start train.py with "
                "python -m paddle.distributed.launch, which sets it, or unset it to train locally"
            )


def _check_counts(known: _Claims) -> None:
    workers, count, rank = (known.value(t) for t in ("workers", "worker_count", "worker_rank"))
    if workers and count is not None and count != len(workers):
        raise UserError(
            f"{known.says('worker_count')} but {known.says('workers')} names {len(workers)}; "
            "they must agree"
        )
    size = len(workers) if workers else count
    if known.value("kind") == "worker" and rank is not None and size and rank >= size:
        raise UserError(
            f"{known.says('worker_rank')} is out of range: there are {size} workers, "
            f"so ranks go from 0 to {size - 1}"
        )


def _coordinator(known: _Claims) -> Role:
    if "coordinator" not in known:
        raise UserError(
            f"{known.says('kind')} needs COORDINATOR=host:port, the address under which the "
            "others reach it"
        )
    address = known.value("coordinator")
    return Role(
        "coordinator",
        endpoint=address,
        coordinator=address,
        servers_at=known.value("servers_at"),
        workers_at=known.value("workers_at"),
        source=known.says("kind"),
    )


def _server(known: _Claims, own_address: Callable[[str], str]) -> Role:
    servers, coordinator = _peers(known)
    endpoint = _server_endpoint(known, servers, own_address)
    rank = known.value("server_rank")
    if servers:
        endpoint = _in_list(endpoint, known, servers)
        if rank not in (None, servers.index(endpoint)):
            raise UserError(
                f"{known.says('server_rank')} but this server, {endpoint}, has rank "
                f"{servers.index(endpoint)} in {known.says('servers')}; unset one of them"
            )
        rank = servers.index(endpoint)
    _refuse_ipv6(endpoint)
    return Role(
        "server",
        rank=rank,
        servers=servers,
        workers=known.value("workers", ()),
        worker_count=_worker_count(known),
        endpoint=endpoint,
        coordinator=coordinator,
        hosts_coordinator=rank == 0 and "coordinator" not in known,
        source=known.says("kind"),
    )


def _worker(known: _Claims) -> Role:
    servers, coordinator = _peers(known)
    workers, rank = known.value("workers", ()), known.value("worker_rank")
    host = known.value("host")
    if host is None and workers and rank is not None:
        host = _host_of(workers[rank])
    return Role(
        "worker",
        rank=rank,
        servers=servers,
        workers=workers,
        worker_count=_worker_count(known),
        endpoint=host,
        coordinator=coordinator,
        source=known.says("kind"),
    )


def _peers(known: _Claims) -> tuple[tuple[str, ...], str]:
    """The servers (empty: from the coordinator) and the coordinator."""
    servers: tuple[str, ...] = known.value("servers", ())
    for server in servers:
        _refuse_ipv6(server)
    coordinator = known.value("coordinator")
    if coordinator is None and not servers:
        listing = (
            "PADDLE_PSERVERS_IP_PORT_LIST"
            if known.says("kind").startswith("TRAINING_ROLE")
            else "SERVER_ENDPOINTS"
        )
        raise UserError(
            f"{known.says('kind')} is set but no peer is named; set COORDINATOR=host:port "
            f"or {listing}=host:port,..."
        )
    return servers, coordinator or coordinator_endpoint(servers[0])


def _server_endpoint(
    known: _Claims, servers: tuple[str, ...], own_address: Callable[[str], str]
) -> str:
    if "endpoint" in known:
        return _own_endpoint(known)
    host, port = known.value("host"), known.value("port", DEFAULT_SERVER_PORT)
    if servers and (host is None or "port" not in known):
        if len(servers) == 1:
            return servers[0]
        raise UserError(
            f"{known.says('kind')} with {known.says('servers')}: which of them is this one? "
            "set SERVER_ENDPOINT=host:port"
        )
    if host is None:
        host = own_address(known.value("coordinator"))
    return str(parse_endpoint(str(Endpoint(host, port)), "the server's own address"))


def _own_endpoint(known: _Claims) -> str:
    endpoint = str(known.value("endpoint"))
    port = parse_endpoint(endpoint, "own endpoint").port
    if known.value("port", port) != port:
        raise UserError(f"{known.says('endpoint')} and {known.says('port')} disagree; unset one")
    return endpoint


def _in_list(endpoint: str, known: _Claims, servers: tuple[str, ...]) -> str:
    """The entry of the list that is this server."""
    if endpoint in servers:
        return endpoint
    port = parse_endpoint(endpoint, "own endpoint").port
    parsed = [parse_endpoint(server, "server") for server in servers]
    # Paddle's launcher sets POD_IP to the machine's address even for a list on 127.0.0.1. Where
    # all servers are on this machine, the port alone says which one this is.
    same_port = [str(server) for server in parsed if server.port == port]
    if all(server.is_loopback for server in parsed) and len(same_port) == 1:
        return same_port[0]
    own = [known.says(topic) for topic in ("endpoint", "host", "port") if topic in known]
    raise UserError(
        f"this server is {endpoint} ({', '.join(own)}) but {known.says('servers')} does not name "
        "it; write it the same way in both"
    )


def _worker_count(known: _Claims) -> int | None:
    workers = known.value("workers")
    return len(workers) if workers else known.value("worker_count")


def _refuse_ipv6(endpoint: str) -> None:
    if ":" in parse_endpoint(endpoint, "server").host:
        raise UserError(
            f"server {endpoint}: Paddle 2.6.2 can't use IPv6 addresses; give a host name or IPv4"
        )


def _host_of(worker: str) -> str:
    return parse_endpoint(worker, "worker").host if ":" in worker else worker


def _own_address(coordinator: str) -> str:
    """The address of this machine on the way to the coordinator; nothing is sent."""
    target = parse_endpoint(coordinator, "COORDINATOR")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return _address_of_own_name()


def _address_of_own_name() -> str:
    name = socket.gethostname()
    try:
        return str(ipaddress.ip_address(socket.gethostbyname(name)))
    except OSError:
        raise UserError(
            f"this machine's name {name} has no address; set SERVER_ENDPOINT=host:port"
        ) from None
