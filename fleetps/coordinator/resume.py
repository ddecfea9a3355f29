"""With which checkpoint a job begins whose state is fresh."""

from __future__ import annotations

import logging
from pathlib import Path

from fleet_config.errors import TryAgain, UserError
from fleet_config.job import Job
from fleetps.checkpoint import choose, fits
from fleetps.checkpoint.format import data_record
from fleetps.checkpoint.mirror import Mirror, check_url, fetch_newest
from fleetps.checkpoint.store import NAME, Checkpoint, Checkpoints
from fleetps.coordinator.choice import fault, none_left
from fleetps.coordinator.progress import Progress, read_progress
from fleetps.data.dataset import Dataset

_log = logging.getLogger(__name__)


def find(job: Job, dataset: Dataset) -> tuple[Checkpoint, Progress] | None:
    """The checkpoint that checkpoint.resume asks for; None: begin at the beginning.

    Raises:
        UserError: it is damaged, or doesn't fit the job or its data.
        TryAgain: there are some, but none can be read; or the mirror can't be.
    """
    resume = job.checkpoint.resume
    if job.checkpoint.mirror is not None:
        check_url(job.checkpoint.mirror)  # better refused now than after a checkpoint
    if resume == "never":
        return None
    if isinstance(resume, Path):
        checkpoint = choose.to_resume(resume, job, dataset)
    elif (newest := _newest(job, dataset)) is not None:
        checkpoint = newest
        fits.check_data(newest.path, newest.manifest, data_record(dataset))
    else:
        return None
    progress = read_progress(str(checkpoint.path), checkpoint.manifest.progress)
    _check_epochs(checkpoint.path, progress, job)
    return checkpoint, progress


def _newest(job: Job, dataset: Dataset) -> Checkpoint | None:
    """Of a run that was not finished."""
    store = Checkpoints(job.checkpoint_dir)
    if mirror := _needed(job, store):
        _fetch_unfinished(mirror, store)
    newest = store.newest_valid(job, dataset.columns)
    if newest is None:
        _refuse_unreadable(store)
        return None
    if job.checkpoint.path is None and job.checkpoint.mirror is None:
        return newest  # those of a finished run were set aside with it
    rows = job.job.epochs * dataset.split("train").rows
    if read_progress(str(newest.path), newest.manifest.progress).rows == rows:
        _log.info("%s is of a finished run: this one begins anew", newest.path)
        return None
    return newest


def _refuse_unreadable(store: Checkpoints) -> None:
    for entry in reversed(store.entries()):
        if NAME.fullmatch(entry.name) and (why := fault(entry)):
            raise TryAgain(none_left(why))


def fetch_lost(job: Job) -> None:
    """Get the newest checkpoint back from the mirror if the job's directory has none.

    Raises:
        TryAgain: the mirror can't be read.
    """
    store = Checkpoints(job.checkpoint_dir)
    if mirror := _needed(job, store):
        _fetch(mirror, store)


def _needed(job: Job, store: Checkpoints) -> Mirror | None:
    """The mirror, if there is one and nothing here."""
    url = job.checkpoint.mirror
    return None if url is None or store.list() else Mirror(url, job.job.name)


def _fetch_unfinished(mirror: Mirror, store: Checkpoints) -> None:
    copies = mirror.list()
    if not copies:
        return
    manifest = copies[0].manifest
    rows = int(str(manifest.job.agreement["job.epochs"])) * manifest.data.rows
    if manifest.progress.get("rows") == rows:
        _log.info("%s has those of a finished run: this one begins anew", mirror.url)
        return
    _fetch(mirror, store)


def _fetch(mirror: Mirror, store: Checkpoints) -> None:
    fetched = fetch_newest(mirror, store)
    if fetched is not None:
        _log.info("%s was copied from %s", fetched.name, mirror.url)


def _check_epochs(path: Path, progress: Progress, job: Job) -> None:
    if progress.epoch >= job.job.epochs:
        raise UserError(
            f"{path}: is in epoch {progress.epoch + 1}, but the job ends after {job.job.epochs} "
            "(job.epochs); raise job.epochs, or begin anew (checkpoint.resume: never)"
        )
