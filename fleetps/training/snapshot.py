"""A worker's part of a checkpoint: what it leaves in one, and what it takes from one.

Sparse rows go through the engine's own text (6 significant digits). Dense parameters and the
optimizer's state are kept bit by bit, in .npz files of ours.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from fleet_config.errors import TryAgain, UserError
from fleet_config.job import Job
from fleetps import paddle_compat
from fleetps.checkpoint.finish import Saved, finish
from fleetps.checkpoint.format import DENSE, TABLES, optimizer_file
from fleetps.checkpoint.reshard import loadable_tables
from fleetps.checkpoint.store import Checkpoint, Checkpoints
from fleetps.coordinator.messages import Chore
from fleetps.data.dataset import Dataset
from fleetps.system.paddle_port import PaddlePort

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 10.0


def leave_state(directory: Path, rank: int, names: Sequence[str]) -> None:
    """Leave this worker's optimizer state for a checkpoint; everybody has flushed."""
    try:
        _write(directory / optimizer_file(rank), names)
    except OSError as error:
        # The checkpoint is judged by who saves it, and that one will meet the same disk.
        log.error("%s: can't write the optimizer's state: %s", directory, error.strerror)


def save(
    job: Job,
    dataset: Dataset,
    chore: Chore,
    generation: int,
    servers: Sequence[str],
    dense: Sequence[str],
) -> Checkpoint:
    """Write, verify and publish a checkpoint, while nobody trains.

    The servers' dense parameters must be in the scope.

    Raises:
        UserError: something was not written, or not what the servers hold.
        TryAgain: a server doesn't answer.
    """
    partial = Path(chore.directory)
    if spoilt := not_finite(dense):
        raise UserError(f"the dense parameter {spoilt} holds nan or inf: the training diverged")
    try:
        _write(partial / DENSE, dense)
    except OSError as error:
        raise UserError(f"{partial}: can't be written: {error.strerror}") from None
    tables = paddle_compat.sparse_tables()
    ids = {name: tables[name] for name in job.tables}
    start = time.monotonic()
    for table_id in ids.values():
        paddle_compat.save_table(table_id, str(partial / TABLES))
    written = time.monotonic()
    saved = Saved(
        number=chore.number,
        generation=generation,
        ranks=_ranks(partial),
        ids=ids,
        rows=rows_of_tables(job, servers),
        progress=chore.progress,
        paddle=paddle.__version__,
    )
    checkpoint = finish(partial, job, dataset, saved)
    took = time.monotonic() - written
    log.info("saved %s: engine %.2f s, verified %.2f s", partial, written - start, took)
    prune(job, Checkpoints(partial.parent))
    return checkpoint


def prune(job: Job, store: Checkpoints) -> None:
    """Remove old ones, but not the one before the newest.

    The coordinator knows of no newer one yet; if this process dies now, the job goes on from that.
    """
    kept = job.checkpoint
    try:
        store.prune(max(kept.keep, 2), kept.keep_every, kept.full_every)
    except UserError as error:  # the new one is there all the same
        log.error("old checkpoints were not removed: %s", error)


def restore_servers(
    checkpoint: Checkpoint, job: Job, servers: Sequence[str], dense: Sequence[str]
) -> None:
    """Give empty servers the rows and dense parameters of a checkpoint; one worker does it.

    Raises:
        TryAgain: a server has not taken over what it should have.
    """
    start = time.monotonic()
    ids = paddle_compat.sparse_tables()
    ports = _ports(servers)
    with loadable_tables(checkpoint, job) as tables:
        for name, record in checkpoint.manifest.tables.items():
            paddle_compat.load_table(ids[name], str(tables))
            rows = _rows(ports, ids[name])
            if rows != record.rows:
                raise TryAgain(
                    f"the servers took {rows} of the {record.rows} rows of table {name} from "
                    f"{checkpoint.path}; see their logs"
                )
    _take(checkpoint.dense, dense)
    paddle_compat.push_dense()
    paddle_compat.flush()
    log.info("restored %s in %.1f s", checkpoint.path, time.monotonic() - start)


def rows_of_tables(job: Job, servers: Sequence[str]) -> dict[str, int]:
    """How many rows all servers together hold, by table."""
    ids = paddle_compat.sparse_tables()
    ports = _ports(servers)
    return {name: _rows(ports, ids[name]) for name in job.tables}


def _ports(servers: Sequence[str]) -> dict[str, PaddlePort]:
    return {endpoint: PaddlePort(endpoint, _ANSWER_SECONDS) for endpoint in servers}


def _rows(ports: Mapping[str, PaddlePort], table_id: int) -> int:
    total = 0
    for rank, (endpoint, port) in enumerate(ports.items()):
        rows = port.rows(table_id)
        if rows is None:
            raise TryAgain(f"server {rank} ({endpoint}) doesn't say how many rows it holds")
        total += rows
    return total


def take_state(checkpoint: Checkpoint, rank: int, names: Sequence[str]) -> None:
    """Go on with the optimizer's state.

    A job that only begins with a checkpoint's weights may have another optimizer; what that one
    doesn't know begins as ever.
    """
    file = checkpoint.optimizer(rank)
    with np.load(file) as arrays:
        known = [name for name in names if name in arrays.files]
        _set({name: arrays[name] for name in known})
    if len(known) < len(names):
        log.info("%s has %d of the optimizer's %d variables", file, len(known), len(names))


def _take(file: Path, names: Sequence[str]) -> None:
    """Set variables of the scope to the arrays of these names in an .npz file."""
    with np.load(file) as arrays:
        _set({name: arrays[name] for name in names})


def _set(values: Mapping[str, Any]) -> None:
    scope = paddle.static.global_scope()
    for name, value in values.items():
        scope.find_var(name).get_tensor().set(value, paddle.CPUPlace())


def not_finite(names: Sequence[str]) -> str:
    """The first of these variables of the scope that holds nan or inf; "": none does."""
    scope = paddle.static.global_scope()
    values = ((name, np.array(scope.find_var(name).get_tensor())) for name in names)
    return next((name for name, value in values if not np.isfinite(value).all()), "")


def _write(file: Path, names: Sequence[str]) -> None:
    scope = paddle.static.global_scope()
    values = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
    np.savez(file, **values)


def _ranks(partial: Path) -> list[int]:
    """Of the workers that have left their state."""
    return sorted(int(file.stem.split("-")[1]) for file in partial.glob("optimizer-*.npz"))
