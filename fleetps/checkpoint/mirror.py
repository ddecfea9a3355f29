"""A second place for checkpoints, whatever fsspec can write to: files, S3, HDFS, ...

    <url>/<job.name>/<checkpoint>/     as in the job's own directory, but most are deltas there
                                       from the beginning

A manifest is written last, so what has one is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fsspec

from fleet_config.errors import FleetError, TryAgain, UserError
from fleetps.checkpoint.format import MANIFEST, DamagedCheckpoint, Manifest, parse_manifest
from fleetps.checkpoint.publish import publish
from fleetps.checkpoint.retention import to_keep
from fleetps.checkpoint.store import NAME, PARTIAL, THIN, Checkpoint, Checkpoints
from fleetps.checkpoint.verify import verify

_log = logging.getLogger(__name__)


def check_url(url: str) -> None:
    """Raises:
    UserError: nothing on this machine can read such a URL.
    """
    try:
        fsspec.get_filesystem_class(url.partition("://")[0])
    except (ImportError, ValueError) as error:
        raise UserError(f"checkpoint.mirror: {url}: can't be used: {error}") from None


def place_of(url: str, job_name: str) -> str:
    """Where the copies of a job's checkpoints are."""
    return f"{url.rstrip('/')}/{job_name}"


@dataclass(frozen=True)
class Copy:
    """A complete checkpoint in the mirror."""

    name: str
    manifest: Manifest


class Mirror:
    """The copies of one job's checkpoints.

    Whatever goes wrong there is a TryAgain, whose sentence has what the file system said.
    """

    def __init__(self, url: str, job_name: str) -> None:
        check_url(url)
        self.url = place_of(url, job_name)
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.url)
        except Exception as error:  # each file system has its own ones
            raise TryAgain(f"checkpoint.mirror: {url}: {error}") from None

    def list(self) -> Sequence[Copy]:
        """All that are complete, newest first."""
        with self._asking("can't be listed"):
            self._files.invalidate_cache()
            try:
                entries = self._files.ls(self._root, detail=False)
            except FileNotFoundError:
                return []
        names = (entry.rstrip("/").rpartition("/")[2] for entry in entries)
        found = [copy for name in names if NAME.fullmatch(name) and (copy := self._find(name))]
        # Numbers begin anew where somebody began the job anew.
        return sorted(found, key=lambda c: (c.manifest.time, c.manifest.number), reverse=True)

    def _find(self, name: str) -> Copy | None:
        with self._asking("can't be read"):
            try:
                content = self._files.cat_file(f"{self._root}/{name}/{MANIFEST}")
            except FileNotFoundError:
                return None
        try:
            return Copy(name, parse_manifest(content, f"{self.url}/{name}/{MANIFEST}"))
        except DamagedCheckpoint as error:
            _log.warning("%s (ignored)", error)
            return None

    def put(self, checkpoint: Checkpoint, name: str) -> None:
        """Copy a checkpoint there; the copy has it whole or isn't seen."""
        place = f"{self._root}/{name}"
        with self._asking(f"{name} can't be written"):
            for file in (*sorted(checkpoint.manifest.files), MANIFEST):
                target = f"{place}/{file}"
                self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
                self._files.put_file(str(checkpoint.path / file), target)
                self._check_size(checkpoint.path / file, target)

    def _check_size(self, source: Path, target: str) -> None:
        wanted = source.stat().st_size
        size = self._files.info(target)["size"]
        if size != wanted:
            raise TryAgain(f"{self.url}: {target} has {size} bytes, but {wanted} were written")

    def get(self, copy: Copy, target: Path) -> None:
        """Copy the files of a checkpoint from there into the empty directory `target`.

        Raises:
            DamagedCheckpoint: a file is missing, or not what was once written.
        """
        for file in copy.manifest.files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            with self._asking(f"{copy.name} can't be read"):
                try:
                    self._files.get_file(f"{self._root}/{copy.name}/{file}", str(target / file))
                except FileNotFoundError:
                    raise DamagedCheckpoint(f"{self.url}/{copy.name}/{file}: is missing") from None
        verify(target, copy.manifest)

    def remove(self, name: str) -> None:
        """Remove a copy, its manifest first."""
        with self._asking(f"{name} can't be removed"):
            self._files.rm_file(f"{self._root}/{name}/{MANIFEST}")
            self._files.rm(f"{self._root}/{name}", recursive=True)

    @contextmanager
    def _asking(self, happened: str) -> Iterator[None]:
        try:
            yield
        except FleetError:
            raise
        except Exception as error:  # each file system has its own ones
            words = str(error) or type(error).__name__
            raise TryAgain(f"{self.url}: {happened}: {words}") from None


def copy_missing(store: Checkpoints, mirror: Mirror) -> Sequence[str]:
    """Copy what the mirror hasn't, the newest first but after what it builds on.

    Returns:
        The names of what was copied.
    """
    there = {copy.name for copy in mirror.list()}
    copied = []
    for one in store.list():
        for link in reversed((store.thin(one.name) or one).links()):
            name = link.name.removeprefix(THIN)
            if name not in there:
                mirror.put(link, name)
                there.add(name)
                copied.append(name)
    return copied


def prune(mirror: Mirror, keep: int, keep_every: int | None) -> None:
    """Remove from the mirror what a job doesn't keep in its own directory either."""
    found = mirror.list()
    bases = {copy.name: copy.manifest.base for copy in found}
    kept = to_keep(found, bases, keep, keep_every)
    for copy in found:
        if copy.name not in kept:
            mirror.remove(copy.name)


def fetch_newest(mirror: Mirror, store: Checkpoints) -> Checkpoint | None:
    """Copy the newest complete checkpoint, and what it builds on, into the job's directory.

    Raises:
        UserError: it can't be written.
        TryAgain: the mirror can't be read.
    """
    copies = {copy.name: copy for copy in mirror.list()}
    for copy in copies.values():
        try:
            for link in _links(copy, copies, mirror):
                fetched = _fetch(mirror, link, store)
        except DamagedCheckpoint as error:
            _log.warning("%s: %s (the one before it is used)", copy.name, error)
            continue
        return fetched
    return None


def _links(copy: Copy, copies: dict[str, Copy], mirror: Mirror) -> Sequence[Copy]:
    """Oldest first."""
    links = [copy]
    while (base := links[-1].manifest.base) is not None:
        if base not in copies or len(links) > len(copies):
            raise DamagedCheckpoint(
                f"{mirror.url}/{links[-1].name}: builds on {base}, which isn't there"
            )
        links.append(copies[base])
    return links[::-1]


def _fetch(mirror: Mirror, copy: Copy, store: Checkpoints) -> Checkpoint:
    final = store.path / copy.name
    if final.exists():
        return Checkpoint(final, copy.manifest)
    partial = store.path / f"{PARTIAL}{copy.name}"
    store.abandon(partial)  # of a time when this was interrupted
    try:
        partial.mkdir(parents=True)
        mirror.get(copy, partial)
        publish(partial, final, copy.manifest)
        return Checkpoint(final, copy.manifest)
    except OSError as error:
        raise UserError(
            f"{partial}: can't be written: {error.strerror or error}; make room there or set "
            "checkpoint.path to another directory"
        ) from None
    finally:
        store.abandon(partial)
