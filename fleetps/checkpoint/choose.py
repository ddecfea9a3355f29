"""The checkpoint that a job file names: checkpoint.resume or checkpoint.warm_start."""

from __future__ import annotations

from pathlib import Path

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleetps.checkpoint import fits
from fleetps.checkpoint.format import MANIFEST, data_record
from fleetps.checkpoint.store import Checkpoint, Checkpoints, open_checkpoint, verify_links
from fleetps.data.dataset import Dataset


def check_wanted(job: Job, dataset: Dataset) -> None:
    """What the job file names is there and fits; its files aren't read.

    Raises:
        UserError: it isn't, or doesn't.
    """
    if isinstance(job.checkpoint.resume, Path):
        _check_resume(_found(job.checkpoint.resume), job, dataset)
    if job.checkpoint.warm_start is not None:
        _check_warm_start(_found(job.checkpoint.warm_start), job, dataset)


def to_resume(path: Path, job: Job, dataset: Dataset) -> Checkpoint:
    """A checkpoint to go on from: its files are verified, and it is of this job and data.

    path: the checkpoint, or a run or a directory of checkpoints, of which the newest is taken.

    Raises:
        UserError: there is none, it is damaged, or it doesn't fit.
    """
    found = _verified(path)
    _check_resume(found, job, dataset)
    return found


def to_warm_start(path: Path, job: Job, dataset: Dataset) -> Checkpoint:
    """The same for a job that begins with its weights: other data and another order are fine."""
    found = _verified(path)
    _check_warm_start(found, job, dataset)
    return found


def _check_resume(found: Checkpoint, job: Job, dataset: Dataset) -> None:
    fits.check_resume(found.path, found.manifest, job, dataset.columns)
    fits.check_data(found.path, found.manifest, data_record(dataset))


def _check_warm_start(found: Checkpoint, job: Job, dataset: Dataset) -> None:
    fits.check_weights(found.path, found.manifest, job, dataset.columns)
    fits.check_vocabulary(found.path, found.manifest, job, dataset)


def _verified(path: Path) -> Checkpoint:
    found = _found(path)
    verify_links(found)
    return found


def _found(path: Path) -> Checkpoint:
    return _newest(path) if _holds_checkpoints(path) else open_checkpoint(path)


def _holds_checkpoints(path: Path) -> bool:
    return path.is_dir() and not (path / MANIFEST).exists()


def _newest(path: Path) -> Checkpoint:
    inner = path / "checkpoints"
    directory = inner if inner.is_dir() else path
    store = Checkpoints(directory)
    store.check_newest()
    found = store.list()
    if not found:
        raise UserError(
            f"{path}: is neither a checkpoint nor a directory with some; `fleetps checkpoint ls` "
            "shows those of a run"
        )
    return found[0]
