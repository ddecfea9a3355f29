"""The directory with a job's checkpoints: which there are, and how one appears and goes.

A checkpoint is written into `.partial-<number>/` and appears by one rename, when all of it is on
the disk. What is removed is first renamed to `.removed-<name>`. So a directory without a dot is
whole, whenever the machine stopped.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleetps.checkpoint import fits
from fleetps.checkpoint.format import (
    DENSE,
    MANIFEST,
    TABLES,
    DamagedCheckpoint,
    Manifest,
    optimizer_file,
    read_manifest,
)
from fleetps.checkpoint.verify import verify
from fleetps.data.dataset import Column

_log = logging.getLogger(__name__)

PARTIAL = ".partial-"
_REMOVED = ".removed-"


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint; its files are verified only where that is said."""

    path: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        """Such as 000003-20250131T093000Z."""
        return self.path.name

    @property
    def tables(self) -> Path:
        """What the engine loads, if it fits the job's shards (see `reshard.loadable_tables`)."""
        return self.path / TABLES

    @property
    def dense(self) -> Path:
        """The dense parameters: an .npz file by name."""
        return self.path / DENSE

    def optimizer(self, rank: int) -> Path:
        """The optimizer's state for a worker; who left none takes another's."""
        ranks = self.manifest.world.ranks
        return self.path / optimizer_file(rank if rank in ranks else ranks[rank % len(ranks)])


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a directory.

    Raises:
        UserError: see `read_manifest`.
    """
    path = path.absolute()
    return Checkpoint(path, read_manifest(path))


class Checkpoints:
    """The checkpoints of one job; `path` need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def list(self) -> Sequence[Checkpoint]:
        """All complete ones, newest first; what isn't one is left out with a warning."""
        found = []
        for entry in self.entries():
            try:
                found.append(Checkpoint(entry, read_manifest(entry)))
            except DamagedCheckpoint as error:
                _log.warning("%s (ignored)", error)
        return sorted(found, key=lambda one: one.manifest.number, reverse=True)

    def entries(self) -> Sequence[Path]:
        """All that looks like a checkpoint, damaged or not, by name."""
        return sorted(
            entry for entry in self._all() if entry.is_dir() and not entry.name.startswith(".")
        )

    def newest_valid(self, job: Job, columns: Sequence[Column]) -> Checkpoint | None:
        """The newest one whose files are all as they were written; damaged ones with a warning.

        Raises:
            UserError: the newest doesn't fit the job, which is no reason to take an older one.
        """
        for one in self.list():
            try:
                verify(one.path, one.manifest)
            except DamagedCheckpoint as error:
                _log.warning("%s (the one before it is used)", error)
                continue
            fits.check_resume(one.path, one.manifest, job, columns)
            return one
        return None

    def next_number(self) -> int:
        """One more than any that there is or was begun, from 1."""
        names = [entry.name.removeprefix(PARTIAL) for entry in self._all()]
        numbers = [int(digits) for name in names if (digits := name.split("-")[0]).isdecimal()]
        return max(numbers, default=0) + 1

    def begin(self, number: int) -> Path:
        """An empty directory to write a checkpoint into; what was left half-made before is gone."""
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            self._remove_left()
            partial = self.path / f"{PARTIAL}{number:06}"
            partial.mkdir()
            return partial

    def commit(self, partial: Path, manifest: Manifest) -> Checkpoint:
        """Make what was written a checkpoint: when this returns, it outlives a power cut."""
        stamp = manifest.time.replace("-", "").replace(":", "")
        with self._writing():
            return publish(partial, self.path / f"{manifest.number:06}-{stamp}", manifest)

    def abandon(self, partial: Path) -> None:
        """Remove what a failed attempt has written."""
        shutil.rmtree(partial, ignore_errors=True)

    def prune(self, keep: int, keep_every: int | None = None) -> tuple[str, ...]:
        """Remove all but the newest `keep`, and those whose number is a multiple of `keep_every`.

        Returns:
            The names of those that were removed.
        """
        old = [
            one
            for one in self.list()[keep:]
            if not (keep_every and one.manifest.number % keep_every == 0)
        ]
        for one in old:
            self.remove(one.name)
        return tuple(one.name for one in old)

    def remove(self, name: str) -> None:
        """Remove one, whole or damaged."""
        if name not in {entry.name for entry in self.entries()}:
            raise UserError(f"{self.path}: has no checkpoint {name}; see `fleetps checkpoint ls`")
        with self._writing():
            hidden = self.path / f"{_REMOVED}{name}"
            (self.path / name).rename(hidden)
            shutil.rmtree(hidden)

    def _all(self) -> Sequence[Path]:
        try:
            return tuple(self.path.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise UserError(f"{self.path}: can't be read: {error.strerror}") from None

    def _remove_left(self) -> None:
        for entry in self._all():
            if entry.name.startswith((PARTIAL, _REMOVED)):
                shutil.rmtree(entry)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What the operating system refuses inside becomes a sentence."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"can't write checkpoints in {self.path}: {error.strerror}; make room there or "
                "set checkpoint.path to another directory"
            ) from None


def publish(partial: Path, final: Path, manifest: Manifest) -> Checkpoint:
    """Write the manifest, see to it that all is on the disk, and rename."""
    (partial / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    for directory, _, files in os.walk(partial, topdown=False):
        for file in files:
            _sync(Path(directory, file))
        _sync(Path(directory))
    partial.rename(final)
    _sync(final.parent)
    return Checkpoint(final, manifest)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
