"""The entry point of every process of a job: job file + environment -> one role -> exit code."""

import logging
import os
import sys
from collections.abc import Sequence

import click

from fleet_config.errors import EXIT_OK, FleetError
from fleet_config.roles import Role, resolve_role
from fleetps import agent
from fleetps.agents import paddle_launcher
from fleetps.agents.counting import count_addresses
from fleetps.checked_job import checked_job
from fleetps.exits import exit_code_of, logged
from fleetps.log_format import log_format_option
from fleetps.observe.logs import set_up_logging
from fleetps.system.pulse_file import agent_pulse
from fleetps.system.rundir import RunDirectory
from fleetps.system.signals import StopRequest

_log = logging.getLogger(__name__)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", required=True, help="The job file.")
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override one value, such as --set data.batch_size=1024; may be repeated.",
)
@log_format_option
def command(config: str, overrides: tuple[str, ...], log_format: str | None) -> int:
    """Play the role that the environment names (ROLE, TRAINING_ROLE or TF_CONFIG).

    Without a role: train locally, in one process without servers.
    """
    set_up_logging("text")
    with agent_pulse():
        return _play(config, overrides, log_format)


def _play(config: str, overrides: Sequence[str], log_format: str | None) -> int:
    role = resolve_role(os.environ)
    extra = [f"observe.log_format={log_format}"] if log_format else []
    job = checked_job(config, [*overrides, *extra], sizes_of(role))
    set_up_logging(job.observe.log_format, role.kind)
    with StopRequest() as stop:
        try:
            agent.run(job, role, stop)
            if role.kind == "worker":
                paddle_launcher.outlast_host(RunDirectory(job.run_dir), os.environ)
        except FleetError as error:
            return logged(error, _log)
        finally:
            stop.enough()
    return EXIT_OK


def sizes_of(role: Role) -> list[str]:
    """Where the environment tells how many servers or workers there are, so many there are."""
    sizes = {"servers": len(role.servers) or None, "workers": role.worker_count}
    for kind, variable, name in (
        ("servers", "SERVERS_AT", role.servers_at),
        ("workers", "WORKERS_AT", role.workers_at),
    ):
        if name:
            sizes[kind] = count_addresses(variable, name)
    return [f"cluster.{name}={size}" for name, size in sizes.items() if size]


def main(argv: Sequence[str] | None = None) -> int:
    """`train.py` and `python -m fleetps.main`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    launcher = paddle_launcher.launcher_pid(os.environ)
    if launcher is not None:
        paddle_launcher.follow(launcher)
    code = exit_code_of(
        lambda: command.main(arguments, prog_name="train.py", standalone_mode=False)
    )
    if code != EXIT_OK and launcher is not None:
        paddle_launcher.report_failure(launcher, os.environ)
    return code


if __name__ == "__main__":
    sys.exit(main())
