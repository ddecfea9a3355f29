"""A model for use elsewhere: tables as Parquet, dense parameters as .npz, no optimizer's state."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fleet_config.errors import UserError
from fleetps.checkpoint.chain import chain_of
from fleetps.checkpoint.format import DENSE
from fleetps.checkpoint.rows import layout_of
from fleetps.checkpoint.store import PARTIAL, Checkpoint
from fleetps.checkpoint.values import Rows, parse_rows


def export(checkpoint: Checkpoint, out: Path) -> list[Path]:
    """Write `<table>.parquet` for each table, and dense.npz, into the new directory `out`.

    A Parquet file has the columns id (int64, as in the data) and values (a list of `dim` float32,
    first value first; 0 for factors that a row doesn't have).

    Raises:
        UserError: `out` is there, or can't be written.
    """
    if out.exists():
        raise UserError(f"{out}: exists already; name a directory that doesn't")
    partial = out.parent / f"{PARTIAL}{out.name}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name in checkpoint.manifest.tables:
            _write_table(checkpoint, name, partial / f"{name}.parquet")
        shutil.copy(checkpoint.dense, partial / DENSE)
        partial.rename(out)
    except OSError as error:
        raise UserError(f"{out}: can't be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sorted(out.iterdir())


def _write_table(checkpoint: Checkpoint, name: str, file: Path) -> None:
    record = checkpoint.manifest.tables[name]
    schema = pa.schema([("id", pa.int64()), ("values", pa.list_(pa.float32(), record.dim))])
    layout = layout_of(record)
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for block in chain_of(checkpoint).table(name):
            writer.write_table(_arrow(parse_rows([block], layout), schema))


def _arrow(rows: Rows, schema: pa.Schema) -> pa.Table:
    ids = pa.array(rows.ids.view(np.int64))
    flat = pa.array(rows.values().astype(np.float32).reshape(-1))
    values = pa.FixedSizeListArray.from_arrays(flat, rows.layout.dim)
    return pa.table([ids, values], schema=schema)
