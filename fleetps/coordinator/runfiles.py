"""The coordinator's files in the run directory, and when a new run sets the old ones aside."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet_config.errors import TryAgain, UserError
from fleetps.coordinator.store import Store

STATE_FILE = "coordinator.sqlite"
EVENTS_FILE = "events.jsonl"
RESULT_FILE = "result.json"
ADDRESS_FILE = "coordinator.address"
KEY_FILE = "coordinator.token"  # of a launched job, while it runs
_LOCK_FILE = "coordinator.lock"
_OF_A_RUN = (STATE_FILE, f"{STATE_FILE}-wal", f"{STATE_FILE}-shm", EVENTS_FILE, RESULT_FILE)

_log = logging.getLogger(__name__)


def open_store(path: Path, digest: str, *, new: bool) -> Store:
    """Go on with the state at `path` if it is this job's and unfinished; otherwise begin anew."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{path.parent}: the run directory cannot be made ({error.strerror}); "
            "set job.output to a directory that can be written"
        ) from error
    if path.exists() and not new:
        store = Store(path)
        job = store.job()
        if job is None or (job.digest == digest and job.state in ("waiting", "running")):
            return store
        store.close()
    set_aside(path.parent)
    return Store(path)


def set_aside(run_dir: Path) -> None:
    """Move an earlier run's state, events and result into previous-<time>/, overwriting nothing."""
    left = [run_dir / name for name in _OF_A_RUN if (run_dir / name).exists()]
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
    with (run_dir / _LOCK_FILE).open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise TryAgain(
                f"another coordinator (process {lock.read().strip()}) works in {run_dir}; "
                "stop it, or give this job another job.name"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
