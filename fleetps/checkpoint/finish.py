"""The end of a save: is everything there that should be, and was it written right?

The engine reports no failure of a save: not a disk that is full, not a server that died, not
workers that trained meanwhile. So nothing is believed before it was read again.
"""

from __future__ import annotations

import platform
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleetps import __version__
from fleetps.checkpoint.format import (
    DENSE,
    DamagedCheckpoint,
    JobRecord,
    Manifest,
    World,
    column_records,
    data_record,
    optimizer_file,
    table_directory,
    table_records,
)
from fleetps.checkpoint.rows import part_names
from fleetps.checkpoint.store import Checkpoint, Checkpoints
from fleetps.checkpoint.verify import check_rows, file_records, files_in
from fleetps.data.dataset import Dataset
from fleetps.memory import worker_rows


@dataclass(frozen=True)
class Saved:
    """What the process that saved knows.

    Attributes:
        number, generation: see `Manifest`.
        ranks: of the workers that left their optimizer's state.
        ids: table id by table name.
        rows: how many rows the servers say each table has, by table name.
        progress: the coordinator's record.
        paddle: its version.
    """

    number: int
    generation: int
    ranks: Sequence[int]
    ids: Mapping[str, int]
    rows: Mapping[str, int]
    progress: dict[str, JsonValue]
    paddle: str


def finish(partial: Path, job: Job, dataset: Dataset, saved: Saved) -> Checkpoint:
    """Verify what the engine and the workers have written into `partial`, and publish it.

    Raises:
        UserError: something is missing or wrong, or can't be written. `partial` is removed then.
    """
    store = Checkpoints(partial.parent)
    try:
        return store.commit(partial, _manifest(partial, job, dataset, saved))
    except OSError as error:
        store.abandon(partial)
        raise UserError(f"{partial}: can't be read: {error.strerror or error}") from None
    except UserError:
        store.abandon(partial)
        raise


def _manifest(partial: Path, job: Job, dataset: Dataset, saved: Saved) -> Manifest:
    servers = job.cluster.servers
    files = files_in(partial)
    _check_parts(partial, files, job, saved)
    sizes = {name: (partial / name).stat().st_size for name in files}
    table_bytes = {
        table: sum(sizes[name] for name in files if name.startswith(f"{table_directory(id_)}/"))
        for table, id_ in saved.ids.items()
    }
    tables = table_records(job, saved.ids, saved.rows, table_bytes)
    for name, record in tables.items():
        check_rows(partial, name, record, servers)
    # Not in threads: numpy reads headers with Python's parser, which Python 3.11 breaks off with a
    # SystemError when two threads meet in it.
    for rank in saved.ranks:
        _arrays(partial / optimizer_file(rank))
    return Manifest(
        number=saved.number,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        generation=saved.generation,
        job=JobRecord(name=job.job.name, digest=job.digest(), agreement=job.agreement()),
        world=World(servers=servers, ranks=tuple(saved.ranks)),
        data=data_record(dataset),
        columns=column_records(dataset.columns),
        tables=tables,
        vocabulary=worker_rows(job, dataset.distinct_ids),
        dense=_arrays(partial / DENSE),
        progress=saved.progress,
        files=file_records(partial),
        versions={
            "fleetps": __version__,
            "paddle": saved.paddle,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    )


def _check_parts(partial: Path, files: list[str], job: Job, saved: Saved) -> None:
    """Every part file of every table, and no other; an empty one is of a disk that was full."""
    servers = job.cluster.servers
    for table in job.tables:
        directory = table_directory(saved.ids[table])
        wanted = {f"{directory}/{n}" for n in part_names(servers, job.table_shards(table))}
        found = {name for name in files if name.startswith(f"{directory}/")}
        if missing := sorted(wanted - found):
            raise DamagedCheckpoint(
                f"{partial / missing[0]}: was not written ({len(missing)} of {len(wanted)} files "
                f"of table {table} are missing); all servers must be able to write in "
                f"{partial.parent}, a directory that all processes share (checkpoint.path)"
            )
        for name in sorted(found - wanted):
            raise DamagedCheckpoint(f"{partial / name}: is not of this save")
    for name in files:
        if not (partial / name).stat().st_size:
            raise DamagedCheckpoint(
                f"{partial / name}: is empty; is there room in {partial.parent}? Free some, or set "
                "checkpoint.path"
            )


def _arrays(file: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays in an .npz file; all are read, so that a bad one is noticed."""
    shapes = {}
    try:
        with np.load(file) as arrays:
            for name in arrays.files:
                values = arrays[name]
                if not np.isfinite(values).all():
                    raise DamagedCheckpoint(f"{file}: {name} holds nan or inf")
                shapes[name] = values.shape
    except FileNotFoundError:
        raise DamagedCheckpoint(f"{file}: was not written") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DamagedCheckpoint(f"{file}: is damaged: {error}") from None
    return shapes
