"""The command `fleetps logs`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import click

from fleet_config.errors import EXIT_OK, UserError
from fleet_config.job import load_job
from fleetps.coordinator.runfiles import coordinator_runs
from fleetps.logbook import compose, files
from fleetps.logbook.line import Line
from fleetps.logbook.query import Query
from fleetps.observe.output import Lasting
from fleetps.system.rundir import RunDirectory

# A coordinator that died is started again within this time, or the job is over.
_RESTART_SECONDS = 3.0


def of_run(directory: Path, query: Query) -> int:
    """What is in a run directory: a job of this machine, or one whose directory all share."""
    logs = RunDirectory(directory).logs
    if not logs.is_dir():
        raise UserError(
            f"{logs} doesn't exist: no job has run in {directory}; give --run runs/NAME"
        )
    return _print(files.read(logs, query, over=_Over(directory)))


def of_job(config: str, overrides: Sequence[str], query: Query) -> int:
    """Of the hosts in the job file; without any, of this machine."""
    job = load_job(config, overrides)
    if not job.hosts:
        return of_run(job.run_dir, query)
    try:
        from fleetps.ssh.commands import cluster_of  # noqa: PLC0415 - the one extra that it needs
    except ModuleNotFoundError as error:
        raise UserError(
            f"the Python package {error.name} is missing: pip install 'asyncssh>=2.18,<3'"
        ) from None
    cluster = cluster_of(config, overrides)
    asyncio.run(cluster.logs(query, lambda line: _write(line, sys.stdout)))
    return EXIT_OK


def of_compose(project: str, query: Query) -> int:
    """Of a Compose project's containers."""
    return _print(compose.read(project, query))


def _print(lines: Iterator[Line]) -> int:
    output = cast(IO[str], Lasting(sys.stdout))
    line = None
    for line in lines:
        _write(line, output)
    if line is None:
        click.echo("no line of these logs is as asked for", err=True)
    return EXIT_OK


def _write(line: Line, output: IO[str]) -> None:
    output.write(f"{line.shown()}\n")
    output.flush()


class _Over:
    """Whether nobody writes into a run directory any more."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._ran = clock()

    def __call__(self) -> bool:
        if coordinator_runs(self._directory):
            self._ran = self._clock()
        return self._clock() - self._ran > _RESTART_SECONDS
