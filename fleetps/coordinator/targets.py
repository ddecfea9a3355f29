"""GET /targets: the servers' own metrics, for Prometheus' service discovery over HTTP."""

from __future__ import annotations

from pydantic import BaseModel

from fleetps.coordinator.reports import Status


class Target(BaseModel):
    """As Prometheus' `http_sd_configs` wants it."""

    targets: list[str]
    labels: dict[str, str]


def targets(status: Status) -> list[Target]:
    """The servers that are there; each answers /brpc_metrics on the port of its RPC."""
    return [
        Target(targets=[server.address], labels={"role": "server", "rank": str(server.rank)})
        for server in status.servers
        if server.state != "exited"
    ]
