"""`fleetps status`: one look at a running job."""

import os

from rich.console import Console

from fleet_config.endpoints import parse_endpoint
from fleet_config.errors import UserError
from fleetps.coordinator.access import read_token
from fleetps.coordinator.client import CoordinatorClient
from fleetps.observe.live import job_panel

_PATIENCE = 5.0


def show(coordinator: str, *, as_json: bool) -> int:
    """Asks the coordinator and prints what it says."""
    if not coordinator:
        raise UserError("which job? name its coordinator: fleetps status --coordinator host:port")
    address = str(parse_endpoint(coordinator, "--coordinator"))
    with CoordinatorClient(address, read_token(os.environ), _PATIENCE) as client:
        answer = client.status()
    console = Console()
    if as_json:
        console.print_json(answer.model_dump_json())
    else:
        console.print(job_panel(answer))
    return 0
