"""The directory with a job's checkpoints: which there are, and how one appears and goes.

A checkpoint is written into `.partial-<number>/` and appears by one rename, when all of it is on
the disk. What is removed is first renamed to `.removed-<name>`. So a directory without a dot is
whole, whenever the machine stopped.

With checkpoint.full_every the newest is always a full one, so that nothing has to be put together
to go on from it. `.thin-<name>/` is the same as a delta, which takes its place when there is a
newer one (`upkeep`).
"""

from __future__ import annotations

import contextlib
import logging
import re
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
    TABLES,
    DamagedCheckpoint,
    Manifest,
    NewerCheckpoint,
    optimizer_file,
    read_manifest,
)
from fleetps.checkpoint.publish import publish
from fleetps.checkpoint.retention import base_of_newest, to_keep
from fleetps.checkpoint.verify import verify
from fleetps.data.dataset import Column

_log = logging.getLogger(__name__)

NAME = re.compile(r"[0-9]{6,}-[0-9TZ]+")
PARTIAL = ".partial-"
THIN = ".thin-"
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

    def links(self) -> tuple[Checkpoint, ...]:
        """This one and those that it builds on, newest first; the last is full.

        Raises:
            DamagedCheckpoint: one of them isn't there.
        """
        links = [self]
        while (base := links[-1].manifest.base) is not None:
            path = self.path.parent / base
            try:
                links.append(Checkpoint(path, read_manifest(path)))
            except UserError as error:
                raise DamagedCheckpoint(
                    f"{self.path}: is a delta that builds on {base}, but {error}"
                ) from None
            if links[-1].manifest.number >= links[-2].manifest.number:
                raise DamagedCheckpoint(f"{links[-2].path}: builds on {base}, which is no older")
        return tuple(links)


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a directory.

    Raises:
        UserError: see `read_manifest`.
    """
    path = path.absolute()
    return Checkpoint(path, read_manifest(path))


def verify_links(checkpoint: Checkpoint) -> None:
    """Check sizes and checksums of all files of a checkpoint and of those that it builds on.

    Raises:
        DamagedCheckpoint: naming the first file that is wrong.
    """
    for link in checkpoint.links():
        verify(link.path, link.manifest)


class Checkpoints:
    """The checkpoints of one job; `path` need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def list(self) -> Sequence[Checkpoint]:
        """All complete ones, newest first; what can't be read is left out with a warning."""
        found = []
        for entry in self.entries():
            try:
                found.append(Checkpoint(entry, read_manifest(entry)))
            except (DamagedCheckpoint, NewerCheckpoint) as error:
                _log.warning("%s (ignored)", error)
        return sorted(found, key=lambda one: one.manifest.number, reverse=True)

    def entries(self) -> Sequence[Path]:
        """All that looks like a checkpoint, damaged or not, by name."""
        return sorted(
            entry for entry in self._all() if entry.is_dir() and not entry.name.startswith(".")
        )

    def newest_valid(self, job: Job, columns: Sequence[Column]) -> Checkpoint | None:
        """The newest one whose files are all as they were written; damaged ones with a warning.

        The same goes for the files of those that it builds on.

        Raises:
            UserError: the newest doesn't fit the job, or is of a newer FleetPS, which is no reason
                to take an older one.
        """
        self.check_newest()
        for one in self.list():
            try:
                verify_links(one)
            except DamagedCheckpoint as error:
                _log.warning("%s: %s (the one before it is used)", one.name, error)
                continue
            fits.check_resume(one.path, one.manifest, job, columns)
            return one
        return None

    def check_newest(self) -> None:
        """Refuse to go on from an older one when a newer FleetPS has written the newest.

        Raises:
            NewerCheckpoint: it has.
        """
        for entry in self.entries()[-1:]:
            with contextlib.suppress(DamagedCheckpoint):
                read_manifest(entry)

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
            final = self.path / f"{manifest.number:06}-{stamp}"
            publish(partial, final, manifest)
            return Checkpoint(final, manifest)

    def abandon(self, partial: Path) -> None:
        """Remove what a failed attempt has written."""
        shutil.rmtree(partial, ignore_errors=True)

    def thin(self, name: str) -> Checkpoint | None:
        """A full checkpoint as a delta, if that was made."""
        path = self.path / f"{THIN}{name}"
        try:
            return Checkpoint(path, read_manifest(path))
        except UserError:
            return None

    def base_of_newest(self, full_every: int) -> Checkpoint | None:
        """See `retention.base_of_newest`."""
        found = self.list()
        name = base_of_newest(found, self._bases(found), full_every)
        return next((one for one in found if one.name == name), None)

    def _bases(self, found: Sequence[Checkpoint]) -> dict[str, str | None]:
        return {one.name: (self.thin(one.name) or one).manifest.base for one in found}

    def prune(
        self, keep: int, keep_every: int | None = None, full_every: int = 1
    ) -> tuple[str, ...]:
        """Remove all but the newest `keep`, those whose number is a multiple of `keep_every`, and
        those on which one of these builds, or will.

        Returns:
            The names of those that were removed.
        """
        found = self.list()
        bases = self._bases(found)
        if base := base_of_newest(found, bases, full_every):
            bases[found[0].name] = base
        kept = to_keep(found, bases, keep, keep_every)
        old = [one.name for one in found if one.name not in kept]
        for name in old:
            self._remove(name)
        return tuple(old)

    def remove(self, name: str) -> None:
        """Remove one, whole or damaged.

        Raises:
            UserError: there is none of this name, or another one builds on it.
        """
        if name not in {entry.name for entry in self.entries()}:
            raise UserError(f"{self.path}: has no checkpoint {name}; see `fleetps checkpoint ls`")
        for one in self.list():
            if one.manifest.base == name:
                raise UserError(
                    f"{self.path / name}: can't be removed, as {one.name} builds on it; remove "
                    f"{one.name} too, before it"
                )
        self._remove(name)

    def _remove(self, name: str) -> None:
        with self._writing():
            for thin in self.path.glob(f"{THIN}*"):
                # One that builds on it stays full.
                if thin.name == f"{THIN}{name}" or _base_in(thin) == name:
                    shutil.rmtree(thin)
            hidden = self.path / f"{_REMOVED}{name}"
            with contextlib.suppress(FileNotFoundError):  # just being thinned
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


def _base_in(thin: Path) -> str | None:
    try:
        return read_manifest(thin).base
    except UserError:
        return None
