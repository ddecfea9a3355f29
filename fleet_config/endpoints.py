"""`host:port` as text and back."""

from typing import NamedTuple

from fleet_config.errors import UserError

COORDINATOR_PORT_STEP = 1000
_MAX_PORT = 65_535


class Endpoint(NamedTuple):
    """A host name or address and a port; an IPv6 host stands without its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def parse_endpoint(text: str, where: str) -> Endpoint:
    """`host:port`, split at the last colon; `where` says in an error what the text came from."""
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not colon or not host or any(mark in host for mark in " /@[]"):
        raise UserError(f"{where}: {text!r} is not of the form host:port")
    if ":" in host and not bracketed:
        raise UserError(f"{where}: write {text!r} with the IPv6 address in brackets, [host]:port")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise UserError(f"{where}: the port in {text!r} must be a number from 1 to {_MAX_PORT}")
    return Endpoint(host, int(port))


def coordinator_endpoint(server: str) -> str:
    """Where the coordinator of a job with static lists runs: beside server 0.

    Every process derives the same address from the list: the host of server 0, its port + 1000
    (- 1000 where that would be no port).
    """
    host, port = parse_endpoint(server, "server 0")
    if port + COORDINATOR_PORT_STEP <= _MAX_PORT:
        return str(Endpoint(host, port + COORDINATOR_PORT_STEP))
    return str(Endpoint(host, port - COORDINATOR_PORT_STEP))
