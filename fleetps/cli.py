"""The command line: `fleetps launch | data | doctor | status | logs | wait | checkpoint | k8s`.

Each command imports what it needs when it runs, so that `fleetps --help` answers at once.
"""

import os
import sys
from pathlib import Path
from typing import Any

import click

from fleetps import __version__
from fleetps.exits import exit_code_of
from fleetps.log_format import log_format_option
from fleetps.logbook.options import log_options

_HELP = {"help_option_names": ["-h", "--help"]}

config_option = click.option(
    "--config", metavar="FILE", required=True, help="The job file, such as conf/quickstart.yaml."
)
set_option = click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override one value, such as --set optimizer.learning_rate=0.01; may be repeated.",
)


# For a group of commands that is imported only when it is used, and knows its own options.
_PASSED_ON: dict[str, Any] = {"ignore_unknown_options": True, "help_option_names": []}
passed_on = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)


def _run_group(group: click.Group, arguments: tuple[str, ...]) -> int:
    code = group.main(list(arguments), prog_name=f"fleetps {group.name}", standalone_mode=False)
    return code if isinstance(code, int) else 0


@click.group(context_settings=_HELP)
@click.version_option(__version__, prog_name="fleetps")
def cli() -> None:
    """Train click-through-rate models on Paddle's parameter servers."""


@cli.command()
@config_option
@set_option
@click.option("--name", help="The run's name: --set job.name.")
@click.option("--servers", type=int, help="How many servers: --set cluster.servers.")
@click.option("--workers", type=int, help="How many workers: --set cluster.workers.")
@click.option("--threads", type=int, help="Threads of each worker: --set cluster.threads.")
@log_format_option
def launch(
    config: str,
    overrides: tuple[str, ...],
    name: str | None,
    servers: int | None,
    workers: int | None,
    threads: int | None,
    log_format: str | None,
) -> int:
    """Train a job on this machine: coordinator, servers and workers as processes."""
    from fleetps import launch as launcher
    from fleetps.checked_job import checked_job

    shorthands = {
        "job.name": name,
        "cluster.servers": servers,
        "cluster.workers": workers,
        "cluster.threads": threads,
        "observe.log_format": log_format,
    }
    given = [f"{key}={value}" for key, value in shorthands.items() if value is not None]
    return launcher.run(checked_job(config, [*overrides, *given]))


@cli.command(context_settings=_PASSED_ON, add_help_option=False)
@passed_on
def data(arguments: tuple[str, ...]) -> int:
    """Convert, make and show data sets."""
    from fleetps.data.commands import data as group

    return _run_group(group, arguments)


@cli.command()
@click.option("--config", metavar="FILE", help="Also check what this job file needs.")
@set_option
@click.option("--dry-run", is_flag=True, help="Show who would do what; start nothing.")
def doctor(config: str | None, overrides: tuple[str, ...], dry_run: bool) -> int:
    """Check this machine, the environment and a job; say how to mend what is wrong."""
    from fleetps.doctor import run

    return run(config, overrides, dry_run=dry_run)


@cli.command()
@click.option("--run", metavar="DIR", help="Its run directory, such as runs/quickstart.")
@click.option("--coordinator", metavar="HOST:PORT", help="Or its address; without: $COORDINATOR.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def status(run: str | None, coordinator: str | None, as_json: bool) -> int:
    """Show how a running job is doing."""
    from fleetps.statusline import show

    if run and coordinator:
        raise click.UsageError("--run and --coordinator name the job twice: give one of them")
    return show(coordinator or os.environ.get("COORDINATOR", ""), run, as_json=as_json)


@cli.command()
@click.option("--run", metavar="DIR", help="Its run directory, such as runs/quickstart.")
@click.option("--coordinator", metavar="HOST:PORT", help="Or its address; without: $COORDINATOR.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds for which a job that failed may be started again.",
)
@click.option(
    "--config",
    metavar="FILE",
    help="Its job file: a mistake in it, or in the data, ends the waiting with exit code 2.",
)
@set_option
def wait(
    run: str | None,
    coordinator: str | None,
    patience: float,
    config: str | None,
    overrides: tuple[str, ...],
) -> int:
    """Wait for the end of a job; ends with its exit code."""
    from fleetps.checked_job import checked_job
    from fleetps.waiting import wait as wait_for_end

    if run and coordinator:
        raise click.UsageError("--run and --coordinator name the job twice: give one of them")
    job = checked_job(config, overrides) if config else None
    return wait_for_end(coordinator or os.environ.get("COORDINATOR"), run, patience, job)


@cli.command()
@click.option("--run", metavar="DIR", help="A job of this machine: its run directory.")
@click.option("--config", metavar="FILE", help="A job on the hosts of its job file, over ssh.")
@set_option
@click.option("--compose", metavar="PROJECT", help="A job in containers: its Compose project.")
@log_options
def logs(
    run: str | None,
    config: str | None,
    overrides: tuple[str, ...],
    compose: str | None,
    **options: Any,
) -> int:
    """Show what all processes of a job have written, in the order of time (UTC)."""
    from fleetps.logbook import show
    from fleetps.logbook.query import query_of

    query = query_of(**options)
    match run, config, compose:
        case str(), None, None:
            return show.of_run(Path(run), query)
        case None, str(), None:
            return show.of_job(config, overrides, query)
        case None, None, str():
            return show.of_compose(compose, query)
    raise click.UsageError("name the job by one of --run, --config and --compose")


@cli.command(context_settings=_PASSED_ON, add_help_option=False)
@passed_on
def checkpoint(arguments: tuple[str, ...]) -> int:
    """List, check, compare, convert and remove checkpoints."""
    from fleetps.checkpoint.commands import checkpoint as group

    return _run_group(group, arguments)


@cli.command(context_settings=_PASSED_ON, add_help_option=False)
@passed_on
def k8s(arguments: tuple[str, ...]) -> int:
    """Write the Kubernetes manifests of a job."""
    from fleetps.k8s.commands import k8s as group

    return _run_group(group, arguments)


def main() -> None:
    """The `fleetps` command."""
    sys.exit(exit_code_of(lambda: cli.main(prog_name="fleetps", standalone_mode=False)))
