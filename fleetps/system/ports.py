"""TCP ports: find a free one, and say who holds one that should be free."""

import errno
import itertools
import random
import socket
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from fleet_config.endpoints import parse_endpoint
from fleet_config.errors import FleetError, TryAgain, UserError


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports of `host` that nobody uses at this moment.

    They lie below those that the kernel gives to outgoing connections: between this look and the
    moment when Paddle binds lie seconds, in which any connection could take such a port.
    """
    candidates = random.sample(_BELOW_EPHEMERAL, k=len(_BELOW_EPHEMERAL))
    free = list(itertools.islice((p for p in candidates if _is_free(host, p)), count))
    if len(free) < count:
        raise TryAgain(f"{host} has no {count} free ports from 20000 to 31999")
    return free


def _is_free(host: str, port: int) -> bool:
    try:
        check_free(host, port)
    except FleetError:
        return False
    return True


_BELOW_EPHEMERAL = range(20_000, 32_000)


class UnresolvedHost(TryAgain):
    """A host name without an address; in a cluster it may get one soon."""


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The address behind a host name."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise UnresolvedHost(
            f"the host name {host} can't be resolved: check its spelling and the DNS"
        ) from None
    family, _, _, _, address = found[0]
    return family, (str(address[0]), int(address[1]))


def check_free(host: str, port: int) -> None:
    """Refuse a port that can't be bound, naming what holds it.

    Paddle's server must never be the first to find out: it ends with exit code 0 when its port is
    in use, and its workers then train against whatever listens there.
    """
    family, address = resolve(host, port)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As brpc binds: connections of an earlier server that still linger are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            raise _refusal(error, host, port) from None


def _refusal(error: OSError, host: str, port: int) -> TryAgain | UserError:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return TryAgain(
            f"port {where} is in use{port_holder(port)}: end that program or choose another port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return UserError(f"{where} is not an address of this machine: check the server's endpoint")
    if error.errno == errno.EACCES:
        return UserError(f"port {where} may not be opened by this user: choose a port above 1023")
    return TryAgain(f"port {where} can't be opened: {error.strerror}")


class Server(NamedTuple):
    """One of a job's servers, as it is called in a sentence."""

    rank: int
    endpoint: str

    def __str__(self) -> str:
        return f"server {self.rank} ({self.endpoint})"


def unreachable(endpoints: Sequence[str], seconds: float = 1.0) -> Server | None:
    """The first server, of these endpoints by rank, that accepts no connection."""
    for server in map(Server._make, enumerate(endpoints)):
        try:
            with socket.create_connection(parse_endpoint(server.endpoint, "server"), seconds):
                pass
        except OSError:
            return server
    return None


def port_holder(port: int) -> str:
    """Who listens on `port`, such as " by process 123 (python)"; empty when it can't be seen."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if not connection.laddr or connection.laddr.port != port:
                continue
            if connection.status == psutil.CONN_LISTEN and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        pass  # Other users' processes are hidden from us: the port alone must do.
    return ""
