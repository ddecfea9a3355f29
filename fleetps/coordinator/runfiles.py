"""The coordinator's files in the run directory, and when a new run sets the old ones aside."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psutil

from fleet_config.errors import TryAgain, UserError
from fleet_config.job import Job
from fleetps.coordinator.messages import JobState
from fleetps.coordinator.saved import SavedCheckpoints
from fleetps.coordinator.store import Store
from fleetps.system.lockfile import held, holder

STATE_FILE = "coordinator.sqlite"
EVENTS_FILE = "events.jsonl"
RESULT_FILE = "result.json"
CHECKPOINTS = "checkpoints"
ADDRESS_FILE = "coordinator.address"
KEY_FILE = "coordinator.token"  # of a launched job, while it runs
CURVES = "tensorboard"
_LOCK_FILE = "coordinator.lock"
_OF_A_RUN = (
    STATE_FILE, f"{STATE_FILE}-wal", f"{STATE_FILE}-shm", EVENTS_FILE, RESULT_FILE, CURVES
)  # fmt: skip

_log = logging.getLogger(__name__)


def open_store(
    run_dir: Path,
    job: Job,
    *,
    new: bool,
    again: bool,
    stays: bool = False,
    restarted: bool = False,
) -> Store:
    """Go on with the state in `run_dir` if it is this job's and unfinished; otherwise begin anew.

    `again`: all processes that worked with it have ended.
    `stays`: the state of a finished run is this job's too.
    `restarted`: so is that of one that has failed or was stopped.
    """
    path = run_dir / STATE_FILE
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{run_dir}: the run directory cannot be made ({error.strerror}); "
            "set job.output to a directory that can be written"
        ) from error
    finished = False
    if path.exists() and not new and (store := _readable(path, again)) is not None:
        # Where it is done, its result may be still to be written.
        stays = stays or not (run_dir / RESULT_FILE).exists()
        if _goes_on(store, job, again=again, stays=stays, restarted=restarted):
            return store
        row = store.job()
        finished = row is not None and row.state == "done"
        store.close()
    set_aside(run_dir, [CHECKPOINTS] if finished else [])
    return Store(path)


def _readable(path: Path, again: bool) -> Store | None:
    try:
        return Store(path)
    except UserError as error:
        if not again:
            raise
        _log.warning("%s; it is set aside", error)
        return None


def _goes_on(store: Store, job: Job, *, again: bool, stays: bool, restarted: bool) -> bool:
    row = store.job()
    if row is None:
        return True
    if row.digest != job.digest():
        return False
    if restarted or row.state == "done":
        return restarted or stays
    if "sync" in job.mode_names and row.workers != job.cluster.workers:
        return False  # its tasks are cut for another number of workers
    if row.state in ("waiting", "running") and not again:
        return True
    return job.checkpoint.resume == "auto" and bool(SavedCheckpoints(store).saved())


def set_aside(run_dir: Path, more: Sequence[str] = ()) -> None:
    """Move an earlier run's state, events and result into previous-<time>/, overwriting nothing."""
    left = [run_dir / name for name in (*_OF_A_RUN, *more) if (run_dir / name).exists()]
    if not left:
        return
    previous = run_dir / f"previous-{time.strftime('%Y%m%d-%H%M%S')}"
    while previous.exists():
        previous = previous.with_name(f"{previous.name}-again")
    previous.mkdir()
    for file in left:
        file.rename(previous / file.name)
    _log.info("the state of an earlier run was moved to %s", previous)


@contextmanager
def only_coordinator(run_dir: Path) -> Iterator[None]:
    """Keep a second coordinator away from this state. The kernel unlocks when this process ends."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with held(run_dir / _LOCK_FILE, lambda holder: _another(holder, run_dir)):
        yield


def _another(holder: str, run_dir: Path) -> TryAgain:
    return TryAgain(
        f"another coordinator (process {holder}) works in {run_dir}; "
        "stop it, or give this job another job.name"
    )


def coordinator_runs(run_dir: Path) -> bool:
    """Whether the coordinator that works in a run directory lives, on this machine."""
    process = holder(run_dir / _LOCK_FILE)
    try:
        return process is not None and "fleetps.coordinator" in process.cmdline()
    except psutil.Error:
        return False


def end_left(run_dir: Path) -> JobState | None:
    """How the job ended, where its coordinator has ended too; None: it hasn't, or nobody knows."""
    path = run_dir / STATE_FILE
    if coordinator_runs(run_dir) or not path.exists():
        return None
    try:
        with closing(Store(path)) as store:
            row = store.job()
    except UserError as error:
        _log.debug("%s", error)
        return None
    if row is None or row.state in ("waiting", "running"):
        return None
    return JobState(
        job=row.state, generation=row.generation, reason=row.reason, exit_code=row.exit_code
    )
