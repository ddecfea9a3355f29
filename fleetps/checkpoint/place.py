"""Which checkpoint is meant by what was typed."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fleet_config.errors import UserError
from fleet_config.job import Job, load_job
from fleetps.checkpoint.mirror import Mirror
from fleetps.checkpoint.store import Checkpoint, Checkpoints, open_checkpoint
from fleetps.system.rundir import RunDirectory

NEWEST = "newest"
Command = Callable[..., Any]

_OPTIONS = (
    click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="With --config."),
    click.option("--config", metavar="FILE", help="Or its job file."),
    click.option(
        "--run",
        "run_dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The run directory of the job that is meant, such as runs/quickstart.",
    ),
)


@dataclass(frozen=True)
class Place:
    """Whose checkpoints are meant, if that was said."""

    store: Checkpoints | None
    job: Job | None = None

    def mirror(self) -> Mirror:
        """The second place of the job's checkpoints.

        Raises:
            UserError: no job was named, or it has none.
        """
        if self.job is None:
            raise UserError("whose mirror? name the job file, --config FILE, or a run with one")
        if self.job.checkpoint.mirror is None:
            raise UserError(f"the job {self.job.job.name} has no mirror (checkpoint.mirror)")
        return Mirror(self.job.checkpoint.mirror, self.job.job.name)

    @property
    def all(self) -> Checkpoints:
        """Those of the job.

        Raises:
            UserError: no job was named.
        """
        if self.store is None:
            raise UserError(
                "which job's checkpoints? name its run directory, --run runs/NAME, or its job "
                "file, --config FILE"
            )
        return self.store

    def find(self, text: str) -> Checkpoint:
        """The checkpoint of a path, a name, a number or the word newest.

        Raises:
            UserError: there is none.
        """
        path = Path(text)
        if os.sep in text or path.is_dir() or (self.store is None and text != NEWEST):
            return open_checkpoint(path)
        found = self.all.list()
        for one in found:
            if text in (NEWEST, one.name, str(one.manifest.number)):
                return one
        if not found:
            raise UserError(f"{self.all.path}: has no checkpoints")
        names = ", ".join(one.name for one in found)
        raise UserError(f"{self.all.path}: has no checkpoint {text}; it has {names}")

    def to_verify(self, text: str) -> Iterator[Path]:
        """The same; for newest also those that are newer but can't be read, and so aren't found."""
        if text != NEWEST or not self.all.entries():
            yield self.find(text).path
            return
        for path in reversed(self.all.entries()):
            yield path
            with contextlib.suppress(UserError):
                open_checkpoint(path)
                return


def in_place(command: Command) -> Command:
    """Adds --run, --config and --set to a command, which gets what they say as `place`."""

    @functools.wraps(command)
    def run(
        run_dir: Path | None, config: str | None, overrides: tuple[str, ...], **others: Any
    ) -> Any:
        if run_dir and config:
            raise click.UsageError("--run and --config name the job twice: give one of them")
        place = Place(None)
        if run_dir:
            place = _of_run(run_dir)
        elif config:
            job = load_job(config, overrides)
            place = Place(Checkpoints(job.checkpoint_dir), job)
        return command(place=place, **others)

    for option in _OPTIONS:
        run = option(run)
    return run


def _of_run(run_dir: Path) -> Place:
    run = RunDirectory(run_dir.absolute())
    if not run.path.is_dir():
        reason = "a file" if run.path.exists() else "it does not exist"
        raise UserError(f"{run_dir}: is no run directory: {reason}")
    store = Checkpoints(run.path / "checkpoints")  # also where the directory was moved or copied
    try:
        job = Job.model_validate_json(run.job_file.read_bytes())
    except (OSError, ValueError):  # not yet there, or of another version
        return Place(store)
    return Place(Checkpoints(job.checkpoint.path) if job.checkpoint.path else store, job)
