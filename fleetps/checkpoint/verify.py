"""Whether the files of a checkpoint are what was written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fleet_config.errors import UserError
from fleetps.checkpoint.format import (
    MANIFEST,
    DamagedCheckpoint,
    FileRecord,
    Manifest,
    TableRecord,
)
from fleetps.checkpoint.rows import count_rows, layout_of, part_names

_BLOCK = 1 << 20
Item = TypeVar("Item")
Result = TypeVar("Result")


def verify(directory: Path, manifest: Manifest, *, deep: bool = False) -> None:
    """Check that all files are there, no others, with the size and checksum written down.

    deep: also read every row and count.

    Raises:
        DamagedCheckpoint: naming the first file that is wrong.
    """
    _check_names(directory, manifest.files)
    for name, record in manifest.files.items():
        size = (directory / name).stat().st_size
        if size != record.bytes:
            raise DamagedCheckpoint(
                f"{directory / name}: has {size:,} bytes, but {MANIFEST} says {record.bytes:,}"
            )
    names = list(manifest.files)
    digests = in_threads(lambda name: sha256(directory / name), names)
    for name, found in zip(names, digests, strict=True):
        if found != manifest.files[name].sha256:
            raise DamagedCheckpoint(
                f"{directory / name}: its content has changed (SHA-256 differs)"
            )
    if deep:
        for name, table in manifest.tables.items():
            check_rows(directory, name, table, manifest.servers)


def check_rows(directory: Path, name: str, record: TableRecord, servers: int) -> None:
    """Read all rows of a table that its files hold, and count them."""
    rows = sum(rows_of_parts(directory, record, servers))
    if rows != record.stored:
        raise DamagedCheckpoint(
            f"{directory / record.directory}: holds {rows:,} rows of table {name}, but "
            f"{record.stored:,} were expected"
        )


def rows_of_parts(directory: Path, record: TableRecord, servers: int) -> list[int]:
    """How many rows each shard has; see `rows.count_rows`."""
    layout = layout_of(record)
    files = [directory / record.directory / name for name in part_names(servers, record.shards)]
    return in_threads(
        lambda shard: count_rows(files[shard], layout, shard, record.shards), range(record.shards)
    )


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Results in order. Unpacking and hashing leave Python's lock to others."""
    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(cancel_futures=True)


def sha256(file: Path) -> str:
    """The checksum of a file's content."""
    digest = hashlib.sha256()
    try:
        with open(file, "rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise UserError(f"{file}: can't be read: {error.strerror}") from None
    return digest.hexdigest()


def file_records(directory: Path) -> dict[str, FileRecord]:
    """Size and checksum of each file in a checkpoint's directory, by name."""
    names = files_in(directory)
    digests = in_threads(lambda name: sha256(directory / name), names)
    return {
        name: FileRecord(bytes=(directory / name).stat().st_size, sha256=digest)
        for name, digest in zip(names, digests, strict=True)
    }


def files_in(directory: Path) -> list[str]:
    """All files of a checkpoint but the manifest, relative to it, sorted."""
    found = (path for path in directory.rglob("*") if not path.is_dir())
    names = (path.relative_to(directory).as_posix() for path in found)
    return sorted(name for name in names if name != MANIFEST)


def _check_names(directory: Path, wanted: Mapping[str, FileRecord]) -> None:
    found = set(files_in(directory))
    for name in wanted:
        if name not in found:
            raise DamagedCheckpoint(f"{directory / name}: is missing, but {MANIFEST} names it")
    for name in sorted(found - set(wanted)):
        raise DamagedCheckpoint(
            f"{directory / name}: is not part of the checkpoint; the engine would not load it with "
            "this file there"
        )
