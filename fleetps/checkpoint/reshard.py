"""The rows of a table in another number of shards.

The engine loads a table only from as many part files as it has shards, and looks for an id in
shard `id mod shards`. Lines go to their new file as they are, so no value changes.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleetps.checkpoint.chain import chain_of
from fleetps.checkpoint.format import (
    TABLES,
    DamagedCheckpoint,
    Manifest,
    TableRecord,
    World,
)
from fleetps.checkpoint.publish import publish
from fleetps.checkpoint.rows import part_names
from fleetps.checkpoint.store import PARTIAL, Checkpoint
from fleetps.checkpoint.verify import file_records, in_threads

_BUFFERED = 1 << 26  # bytes
_LEVEL = 1  # numbers gain little by more


@contextmanager
def loadable_tables(checkpoint: Checkpoint, job: Job) -> Iterator[Path]:
    """The directory from which the engine can load the tables of a job.

    It is the checkpoint's own, or, if that is a delta or the job has other numbers of shards, one
    in the job's checkpoint directory, which all processes see; it is gone when the block ends.

    Raises:
        UserError: it can't be written, or a part file can't be read.
    """
    shards = {name: job.table_shards(name) for name in job.tables}
    manifest = checkpoint.manifest
    saved = {name: record.shards for name, record in manifest.tables.items()}
    if manifest.kind == "full" and shards == saved:
        yield checkpoint.tables
        return
    scratch = job.checkpoint_dir / f"{PARTIAL}resharded"
    try:
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            (scratch / TABLES).mkdir(parents=True)
            _write_tables(checkpoint, scratch, shards, job.cluster.servers)
        except OSError as error:
            raise UserError(
                f"{scratch}: can't write the tables of {checkpoint.path} anew: "
                f"{error.strerror}; make room there or set checkpoint.path to another directory"
            ) from None
        yield scratch / TABLES
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def reshard(checkpoint: Checkpoint, out: Path, shards: Mapping[str, int], servers: int) -> None:
    """Write a checkpoint into `out` that is the same in other shards, by table name.

    Raises:
        UserError: `out` is there, can't be written, or some server would have no shard.
    """
    for name, count in shards.items():
        if count % servers:
            raise UserError(
                f"{servers} servers can't share {count} shards of table {name} alike; use a "
                f"multiple of {servers}"
            )
    if out.exists():
        raise UserError(f"{out}: exists already; name a directory that doesn't")
    partial = out.parent / f"{PARTIAL}{out.name}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        (partial / TABLES).mkdir(parents=True)
        _write_tables(checkpoint, partial, shards, servers)
        for file in checkpoint.path.glob("*.npz"):
            shutil.copy(file, partial)
        publish(partial, out, _manifest(checkpoint.manifest, partial, shards, servers))
    except OSError as error:
        raise UserError(f"{out}: can't be written: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _manifest(
    manifest: Manifest, partial: Path, shards: Mapping[str, int], servers: int
) -> Manifest:
    files = file_records(partial)

    def resharded(record: TableRecord, count: int) -> TableRecord:
        parts = [files[f"{record.directory}/{part}"] for part in part_names(servers, count)]
        size = sum(part.bytes for part in parts)
        return record.model_copy(update={"shards": count, "bytes": size, "changes": None})

    tables = {name: resharded(record, shards[name]) for name, record in manifest.tables.items()}
    world = World(servers=servers, ranks=manifest.world.ranks)
    full = {"kind": "full", "base": None}
    return manifest.model_copy(update={"tables": tables, "files": files, "world": world, **full})


def _write_tables(
    checkpoint: Checkpoint, target: Path, shards: Mapping[str, int], servers: int
) -> None:
    """All tables; those that aren't sparse, which the engine wants to find too, as they are."""
    manifest = checkpoint.manifest
    chain = chain_of(checkpoint)
    by_directory = {record.directory: name for name, record in manifest.tables.items()}
    for source in sorted(checkpoint.tables.iterdir()):
        relative = f"{TABLES}/{source.name}"
        if relative not in by_directory:
            shutil.copytree(source, target / relative)
            continue
        name = by_directory[relative]
        record = manifest.tables[name]
        (target / relative).mkdir()
        rows = _split(chain.table(name), target / relative, part_names(servers, shards[name]))
        if rows != record.rows:
            raise DamagedCheckpoint(
                f"{source}: holds {rows:,} rows of table {name}, but {record.rows:,} were expected"
            )


def _split(blocks: Iterable[bytes], target: Path, names: list[str]) -> int:
    """Send each line to the file of its shard; returns how many there were."""
    shards = len(names)
    waiting: list[list[bytes]] = [[] for _ in names]
    rows = size = 0

    def append(shard: int) -> None:
        # A gzip file may consist of several, so that no file has to stay open.
        with open(target / names[shard], "ab") as stream:
            stream.write(gzip.compress(b"".join(waiting[shard]), _LEVEL, mtime=0))
        waiting[shard].clear()

    for block in blocks:
        lines = block.splitlines(keepends=True)
        for line in lines:
            waiting[int(line[: line.index(b" ")]) % shards].append(line)
        rows += len(lines)
        size += len(block)
        if size > _BUFFERED:
            in_threads(append, range(shards))
            size = 0
    in_threads(append, range(shards))
    return rows
