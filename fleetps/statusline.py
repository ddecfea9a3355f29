"""`fleetps status`: one look at a running job."""

import os
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console

from fleet_config.endpoints import parse_endpoint
from fleet_config.errors import UserError
from fleetps.coordinator.access import TOKEN_FILE, read_token
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.runfiles import (
    ADDRESS_FILE,
    KEY_FILE,
    RESULT_FILE,
    end_left,
)
from fleetps.observe.live import job_panel
from fleetps.observe.results import print_table

_PATIENCE = 5.0


def show(coordinator: str, run: str | None, *, as_json: bool) -> int:
    """Asks the coordinator at an address, or of a run directory, and prints what it says."""
    if run is not None and not as_json and (over := _end_of(Path(run))):
        click.echo(over)
        return 0
    with client_of(coordinator or None, run) as client:
        answer = client.status()
    console = Console()
    if as_json:
        console.print_json(answer.model_dump_json())
    else:
        print_table(console, job_panel(answer))
    return 0


def client_of(
    coordinator: str | None, run: str | None, patience: float | None = None
) -> CoordinatorClient:
    """Of the coordinator at an address, or else of a run directory.

    `patience`: seconds for which it may not answer; None: 5.

    Raises:
        UserError: neither is given, or no coordinator has run there.
    """
    environ: Mapping[str, str] = os.environ
    if run is not None:
        coordinator, environ = _address_of(Path(run)), _access_to(Path(run))
    if not coordinator:
        raise UserError(
            "which job? name its run directory or its coordinator: --run runs/NAME, or "
            "--coordinator host:port"
        )
    address = str(parse_endpoint(coordinator, "--coordinator"))
    return CoordinatorClient(address, read_token(environ), patience or _PATIENCE)


def _end_of(run: Path) -> str:
    """How a job ended whose coordinator has ended too; "": it hasn't, or nobody knows."""
    end = end_left(run)
    if end is None:
        return ""
    more = end.reason or f"{run / RESULT_FILE} has its result"
    return f"{run.absolute().name} is {end.job}; {more}"


def _address_of(run: Path) -> str:
    try:
        return (run / ADDRESS_FILE).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UserError(
            f"no coordinator has run in {run}: {ADDRESS_FILE} can't be read ({error.strerror}); "
            "name the directory <job.output>/<job.name> of a job on this machine"
        ) from None


def _access_to(run: Path) -> Mapping[str, str]:
    key = run / KEY_FILE
    return {TOKEN_FILE: str(key)} if key.exists() else os.environ
