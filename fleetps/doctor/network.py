"""The role in the environment, names, ports, the coordinator."""

import ipaddress
from collections.abc import Iterator, Mapping

from fleet_config.endpoints import parse_endpoint
from fleet_config.errors import TryAgain, UserError
from fleet_config.roles import Role
from fleetps.agent import coordinator_address
from fleetps.coordinator.access import TOKEN_FILE, read_token
from fleetps.coordinator.client import CoordinatorClient
from fleetps.doctor.finding import Finding, fail, failing, ok, warn
from fleetps.system.ports import check_free, resolve

_PATIENCE = 3.0


def role_findings(role: Role, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether this process could play its role here and now."""
    yield ok("role", described(role))
    yield from _names(role)
    yield from _own_port(role)
    yield from _access(role, environ)
    yield from _coordinator(role, environ)


def described(role: Role) -> str:
    """The role in words."""
    if role.kind == "local":
        return f"local ({role.source}): one process, no servers"
    rank = "" if role.rank is None else f" {role.rank}"
    address = f" at {role.endpoint}" if role.endpoint else ""
    host = ", starts the coordinator" if role.hosts_coordinator else ""
    return f"{role.kind}{rank}{address} ({role.source}), coordinator {role.coordinator}{host}"


def _names(role: Role) -> Iterator[Finding]:
    peers = [*role.servers, role.coordinator, role.endpoint if role.kind == "server" else None]
    hosts = dict.fromkeys(parse_endpoint(peer, "peer").host for peer in peers if peer)
    found: list[Finding] = []
    for host in hosts:
        with failing("names", found):
            _, (address, _) = resolve(host, 0)
            found.append(ok("names", f"{host} is {address}"))
    yield from found


def _own_port(role: Role) -> list[Finding]:
    if role.kind not in ("server", "coordinator") or role.endpoint is None:
        return []
    wanted = [role.endpoint]
    if role.hosts_coordinator and role.coordinator:
        wanted.append(role.coordinator)
    findings: list[Finding] = []
    for endpoint in wanted:
        with failing("ports", findings):
            check_free(*parse_endpoint(endpoint, "own endpoint"))
            findings.append(ok("ports", f"{endpoint} is free"))
    return findings


def _access(role: Role, environ: Mapping[str, str]) -> list[Finding]:
    """Whether a coordinator that would start here may serve other machines."""
    if role.kind != "coordinator" and not role.hosts_coordinator:
        return []
    findings: list[Finding] = []
    with failing("access", findings):
        address = coordinator_address(role)
        _, (host, _) = resolve(*parse_endpoint(address, "COORDINATOR"))
        if read_token(environ) is None and not ipaddress.ip_address(host).is_loopback:
            open_to_all = f"the coordinator would listen at {address} for everybody"
            mend = f"set {TOKEN_FILE} to a file with a secret in all processes of the job"
            findings.append(fail("access", open_to_all, mend))
    return findings


def _coordinator(role: Role, environ: Mapping[str, str]) -> list[Finding]:
    """Only one that is named explicitly can be expected to run already."""
    address = role.coordinator
    if address is None or role.kind == "coordinator" or not environ.get("COORDINATOR"):
        return []
    try:
        with CoordinatorClient(address, read_token(environ), _PATIENCE) as client:
            status = client.status()
    except TryAgain as error:
        mend = "start it (ROLE=COORDINATOR), or check the address and the network"
        return [warn("coordinator", str(error), mend)]
    except UserError as error:
        return [fail("coordinator", str(error))]
    return [ok("coordinator", f"{address} answers: job {status.name} is {status.job}")]
