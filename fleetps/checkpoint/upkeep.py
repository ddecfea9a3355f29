"""What is done with checkpoints while training goes on: deltas, and copies in the mirror.

    python -m fleetps.checkpoint.upkeep --job job.json --report report.jsonl [--hurry]

The coordinator starts it after each checkpoint (`coordinator.upkeep`). It appends what it did to
the report, a `Note` per line. It may be killed at any moment.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from fleet_config.errors import FleetError
from fleet_config.job import Job
from fleetps.checkpoint.mirror import Mirror, copy_missing, prune
from fleetps.checkpoint.store import Checkpoints
from fleetps.checkpoint.tidy import tidy
from fleetps.observe.logs import set_up_logging

_log = logging.getLogger(__name__)

DELTAS = "making deltas"
# Below training, which it shares the machine with.
_NICE = 10


class Note(BaseModel):
    """A line of the report; of kind `begins` is what nobody needs to know unless it never ends."""

    kind: Literal["begins", "mirrored", "mirror-failed", "deltas-failed"]
    text: str


def keep_up(job: Job, *, hurry: bool = False) -> Iterator[Note]:
    """Make deltas and copies; what fails is made up for the next time. `hurry`: copies only."""
    wanted = job.checkpoint
    store = Checkpoints(job.checkpoint_dir)
    if wanted.full_every > 1 and not hurry:
        yield Note(kind="begins", text=DELTAS)
        try:
            tidy(store, wanted.full_every)
        except FleetError as error:
            yield Note(kind="deltas-failed", text=f"checkpoints stay full: {error}")
    if wanted.mirror is not None:
        yield Note(kind="begins", text=f"copying to {wanted.mirror}")
        try:
            yield from _copy(job, store, wanted.mirror)
        except FleetError as error:
            yield Note(kind="mirror-failed", text=str(error))


def _copy(job: Job, store: Checkpoints, url: str) -> Iterator[Note]:
    start = time.monotonic()
    mirror = Mirror(url, job.job.name)
    copied = copy_missing(store, mirror)
    if copied:
        seconds = time.monotonic() - start
        yield Note(
            kind="mirrored", text=f"copied {', '.join(copied)} to {mirror.url} in {seconds:.1f} s"
        )
    prune(mirror, job.checkpoint.keep, job.checkpoint.keep_every)


def main(arguments: Sequence[str] | None = None) -> int:
    """The process."""
    parser = argparse.ArgumentParser(prog="python -m fleetps.checkpoint.upkeep")
    parser.add_argument("--job", type=Path, required=True, help="the checked job as JSON")
    parser.add_argument("--report", type=Path, required=True, help="gets a line per note")
    parser.add_argument("--hurry", action="store_true", help="the job stops: copies only")
    options = parser.parse_args(arguments)
    job = Job.model_validate_json(options.job.read_bytes())
    set_up_logging(job.observe.log_format, "upkeep")
    os.nice(0 if options.hurry else _NICE)
    with options.report.open("a", encoding="utf-8", buffering=1) as report:
        for note in keep_up(job, hurry=options.hurry):
            _log.info("%s", note.text)
            report.write(f"{note.model_dump_json()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
