"""A checkpoint as a delta: only what has changed since the one before.

The engine has delta saves of its own, but they hold the rows whose score has grown, so neither
what a decay has changed nor what an eviction has deleted, and a save resets the scores even if it
fails (docs/checkpoints.md). Here two saves are compared, line by line.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from fleetps.checkpoint.chain import (
    Chain,
    Content,
    Digests,
    Ids,
    Mask,
    chain_of,
    digests_of,
    ids_of,
    removed_name,
    within,
)
from fleetps.checkpoint.format import Manifest, TableChanges, TableRecord
from fleetps.checkpoint.rows import part_names
from fleetps.checkpoint.store import Checkpoint
from fleetps.checkpoint.verify import file_records

_LEVEL = 1  # numbers gain little by more


def thin(checkpoint: Checkpoint, base: Checkpoint, target: Path) -> Manifest | None:
    """Write the files of a delta into the empty directory `target`.

    What isn't a table is linked, where the file system can do that.

    Returns:
        Its manifest, which isn't written; None: the tables are laid out in another way than those
        of `base`, or nearly all of their rows have changed, so that a delta would save nothing.

    Raises:
        DamagedCheckpoint: a file of one of the two can't be read.
    """
    manifest = checkpoint.manifest
    if _layout(manifest) != _layout(base.manifest):
        return None
    old, new = chain_of(base), chain_of(checkpoint)
    changes = {}
    for name, record in manifest.tables.items():
        (target / record.directory).mkdir(parents=True)
        changes[name] = _thin_table(old, new, name, target)
    for name in manifest.files:
        if not any(name.startswith(f"{t.directory}/") for t in manifest.tables.values()):
            _link(checkpoint.path / name, target / name)
    thinned = _manifest(manifest, base.name, changes, target)
    return thinned if _bytes(thinned) < _bytes(manifest) else None


def _layout(manifest: Manifest) -> object:
    tables = manifest.tables.items()
    return manifest.servers, [(n, t.id, t.dim, t.held_as, t.shards) for n, t in tables]


def _bytes(manifest: Manifest) -> int:
    return sum(table.bytes for table in manifest.tables.values())


def _thin_table(old: Chain, new: Chain, name: str, target: Path) -> TableChanges:
    record = new.manifest.tables[name]
    directory = target / record.directory
    content = Content()
    changed = removed = 0
    for shard, part in enumerate(part_names(new.manifest.servers, record.shards)):
        before, after = _index(old.shard(name, shard)), _index(new.shard(name, shard))
        content.add(after[1])
        is_new = ~_same(before, after)
        _write(directory / part, _chosen(new.shard(name, shard), is_new))
        changed += int(is_new.sum())
        gone = np.setdiff1d(before[0], after[0])
        if len(gone):
            _write(directory / removed_name(shard), (b"%d\n" % key for key in gone.tolist()))
        removed += len(gone)
    return TableChanges(changed=changed, removed=removed, content=str(content))


def _index(blocks: Iterable[bytes]) -> tuple[Ids, Digests]:
    """Of each line its id and digest: 24 bytes per row."""
    ids, digests = [np.empty(0, np.uint64)], [np.empty((0, 2), np.uint64)]
    for block in blocks:
        lines = block.splitlines(keepends=True)
        ids.append(ids_of(lines))
        digests.append(digests_of(lines))
    return np.concatenate(ids), np.concatenate(digests)


def _same(before: tuple[Ids, Digests], after: tuple[Ids, Digests]) -> Mask:
    """For each row after: whether there was the same one before."""
    order = np.argsort(before[0])
    ordered = before[0][order]
    same = within(ordered, after[0])
    places = order[np.searchsorted(ordered, after[0][same])]
    same[same] = (before[1][places] == after[1][same]).all(axis=1)
    return same


def _chosen(blocks: Iterable[bytes], which: Mask) -> Iterator[bytes]:
    start = 0
    for block in blocks:
        lines = block.splitlines(keepends=True)
        yield b"".join(itertools.compress(lines, which[start : start + len(lines)]))
        start += len(lines)


def _write(file: Path, blocks: Iterable[bytes]) -> None:
    with gzip.open(file, "wb", compresslevel=_LEVEL) as stream:
        stream.writelines(blocks)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copy(source, target)


def _manifest(
    manifest: Manifest, base: str, changes: dict[str, TableChanges], target: Path
) -> Manifest:
    files = file_records(target)

    def thinned(record: TableRecord, change: TableChanges) -> TableRecord:
        own = f"{record.directory}/"
        size = sum(file.bytes for name, file in files.items() if name.startswith(own))
        return record.model_copy(update={"bytes": size, "changes": change})

    tables = {name: thinned(record, changes[name]) for name, record in manifest.tables.items()}
    update = {"kind": "delta", "base": base, "tables": tables, "files": files}
    return manifest.model_copy(update=update)
