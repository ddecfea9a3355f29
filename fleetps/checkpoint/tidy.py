"""Older checkpoints become deltas.

Here alone is a complete checkpoint replaced, and never the newest one, so nobody who goes on from
that can meet it half-way.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from fleet_config.errors import UserError
from fleetps.checkpoint.chain import verify_chain
from fleetps.checkpoint.format import DamagedCheckpoint
from fleetps.checkpoint.publish import publish, sync
from fleetps.checkpoint.store import THIN, Checkpoint, Checkpoints
from fleetps.checkpoint.thin import thin

_log = logging.getLogger(__name__)

_WORK = ".upkeep"


def tidy(store: Checkpoints, full_every: int) -> None:
    """Make the delta of the newest checkpoint, and put those of the others in their place.

    Only one process may do it at a time; it may be killed at any moment.

    Raises:
        UserError: something can't be written; all that was there still is.
    """
    try:
        work = _empty(store)
        newest = store.list()[:1]
        for one in newest:
            base = store.base_of_newest(full_every)
            if base is not None and store.thin(one.name) is None:
                _make_thin(store, one, base, work)
        for one in store.list()[1:]:
            delta = store.thin(one.name)
            if delta is not None:
                _replace(one, delta, work)
        shutil.rmtree(work)
    except OSError as error:
        raise UserError(
            f"can't make deltas in {store.path}: {error.strerror or error}; make room there or set "
            "checkpoint.path to another directory"
        ) from None


def _empty(store: Checkpoints) -> Path:
    """The directory to work in. Who was killed between two renames may have left a gap."""
    for entry in store.path.glob(f"{THIN}*"):
        place = store.path / entry.name.removeprefix(THIN)
        if not place.exists():
            entry.rename(place)
    work = store.path / _WORK
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return work


def _make_thin(store: Checkpoints, one: Checkpoint, base: Checkpoint, work: Path) -> None:
    target = work / one.name
    target.mkdir()
    try:
        manifest = thin(one, base, target)
    except DamagedCheckpoint as error:
        _log.warning("%s stays full: %s", one.name, error)
        return
    if manifest is None:
        _log.info("%s stays full: nearly all of its rows have changed", one.name)
        return
    publish(target, store.path / f"{THIN}{one.name}", manifest)


def _replace(one: Checkpoint, delta: Checkpoint, work: Path) -> None:
    """From here on a checkpoint depends on others: they and what comes out are read once more."""
    try:
        verify_chain(delta)
    except DamagedCheckpoint as error:
        _log.warning("%s stays full: %s", one.name, error)
        shutil.rmtree(delta.path)
        return
    one.path.rename(work / f"full-{one.name}")
    delta.path.rename(one.path)
    sync(one.path.parent)
