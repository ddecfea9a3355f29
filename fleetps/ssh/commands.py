"""The command line of scripts/ssh_cluster.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fleet_config.job import load_job
from fleet_config.roles import DEFAULT_SERVER_PORT
from fleet_config.source import read_source
from fleetps.logbook.options import log_options
from fleetps.logbook.query import query_of
from fleetps.ssh.cluster import Cluster
from fleetps.ssh.payload import packed
from fleetps.ssh.plan import DEFAULT_COORDINATOR_PORT, placements

_ROOT = Path(__file__).resolve().parents[2]


class _Given:
    """What stands before the command."""

    def __init__(self, config: str, overrides: Sequence[str], *, accept_new: bool) -> None:
        self._config = config
        self._overrides = overrides
        self._accept_new = accept_new

    def cluster(
        self,
        coordinator_port: int = DEFAULT_COORDINATOR_PORT,
        server_port: int = DEFAULT_SERVER_PORT,
    ) -> Cluster:
        job = load_job(self._config, self._overrides)
        places = placements(job, self._config, coordinator_port, server_port)
        return Cluster(job, self._text(), places, click.echo, accept_new=self._accept_new)

    def _text(self) -> str:
        """The job file for the hosts: as it was written, since paths mean something else there.

        JSON is YAML, and leaves no doubt about what is text and what a number.
        """
        data = read_source(Path(self._config), self._overrides).data
        return json.dumps({key: value for key, value in data.items() if key != "hosts"}, indent=2)


def cluster_of(config: str, overrides: Sequence[str]) -> Cluster:
    """The hosts of a job file."""
    return _Given(config, overrides, accept_new=False).cluster()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", required=True, help="The job file, with `hosts`.")
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override one value; may be repeated. Give the same to every command.",
)
@click.option(
    "--accept-new",
    is_flag=True,
    help="Take unknown host keys and add them to ~/.ssh/known_hosts; changed ones are refused.",
)
@click.pass_context
def cli(context: click.Context, config: str, overrides: tuple[str, ...], accept_new: bool) -> None:
    """Run a job on the hosts of its job file, over ssh."""
    context.obj = _Given(config, overrides, accept_new=accept_new)


@cli.command()
@click.option(
    "--code",
    type=click.Path(path_type=Path),
    default=_ROOT,
    metavar="PATH",
    help="A checkout or a wheel; without: the checkout of this script.",
)
@click.pass_obj
def sync(given: _Given, code: Path) -> None:
    """Put the code on every host, and check that its Python can run it."""
    asyncio.run(given.cluster().sync(packed(code)))


@cli.command()
@click.option(
    "--coordinator-port",
    type=click.IntRange(1, 65_535),
    show_default=True,
    default=DEFAULT_COORDINATOR_PORT,
    help="Where the coordinator listens.",
)
@click.option(
    "--server-port",
    type=click.IntRange(1, 65_535),
    show_default=True,
    default=DEFAULT_SERVER_PORT,
    help="Where server 0 listens; server n: + n.",
)
@click.option("--wait/--no-wait", default=True, help="Until the job trains; the default.")
@click.pass_obj
def start(given: _Given, coordinator_port: int, server_port: int, wait: bool) -> None:
    """Start what doesn't run yet."""
    asyncio.run(given.cluster(coordinator_port, server_port).start(wait=wait))


@cli.command()
@click.pass_obj
def status(given: _Given) -> None:
    """Show how the job is doing, and every process."""
    asyncio.run(given.cluster().status())


@cli.command()
@log_options
@click.pass_obj
def logs(given: _Given, /, **options: Any) -> None:
    """Show what the processes have written, in the order of time."""
    query = query_of(**options)
    asyncio.run(given.cluster().logs(query, lambda line: click.echo(line.shown())))


@cli.command()
@click.pass_obj
def stop(given: _Given) -> None:
    """Stop the job and end everything that runs of it."""
    asyncio.run(given.cluster().stop())
