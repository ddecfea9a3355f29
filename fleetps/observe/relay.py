"""In a container: what a process of ours has in its log file, on standard output too.

A container's output is what people and collectors of logs look at. Where the output is itself a
file, as under `fleetps launch`, it lies beside the log, and nothing is repeated.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from fleet_config.job import Job
from fleetps.logbook.line import LEVELS, parse
from fleetps.system.growing import GrowingFile
from fleetps.system.logtail import is_noise
from fleetps.system.regularly import regularly
from fleetps.system.rundir import RunDirectory

_log = logging.getLogger("paddle")
_POLL_SECONDS = 0.3


@contextmanager
def relayed(job: Job, name: str) -> Iterator[None]:
    """Inside, each line of logs/<name>.log is passed on, where lines are JSON."""
    if job.observe.log_format != "json" or _is_file(sys.stdout.fileno()):
        yield
        return
    log = RunDirectory(job.run_dir).logs / f"{name}.log"
    file = GrowingFile(log, log.stat().st_size if log.exists() else 0)

    def pass_on() -> None:
        for text in file.lines():
            if not is_noise(text):
                _record(text)

    with regularly(pass_on, _POLL_SECONDS, "relay"):
        yield


def _is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _record(text: str) -> None:
    """As one of our own; what is JSON already is one of another process of ours."""
    level, _, words = parse(text, datetime.now().year).text.partition(" ")
    if text.startswith("{"):
        fields = _fields(text)
        words = str(fields.pop("message", words))
        _log.log(LEVELS.get(level, logging.INFO), words, extra={"fields": fields})
    elif level in LEVELS:
        _log.log(LEVELS[level], "%s", words)
    else:
        _log.info("%s", f"{level} {words}".rstrip())


def _fields(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
