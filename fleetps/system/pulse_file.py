"""Files by which processes show that they live, and workers that they get work done."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fleet_config.errors import UserError
from fleetps.system.regularly import regularly

PULSE_FILE = "pulse"  # by its time of change
WORKED_FILE = "worked"  # there once a task is done
AGENT_PULSE = "FLEETPS_PULSE_FILE"  # the agent's own file, for who watches over containers
_AGENT_SECONDS = 5.0


def give_time(directory: Path, seconds: float) -> None:
    """For a process that is started in `directory`: no sign is due for so long."""
    file = directory / PULSE_FILE
    file.touch()
    due = time.time() + seconds
    os.utime(file, (due, due))


def silent_for(directory: Path) -> float:
    """Seconds since the process in `directory` was to give a sign; less than 0: none is due yet."""
    return time.time() - (directory / PULSE_FILE).stat().st_mtime


@contextmanager
def agent_pulse() -> Iterator[None]:
    """Inside, the file of FLEETPS_PULSE_FILE is touched every few seconds, if there is one."""
    if not os.environ.get(AGENT_PULSE):
        yield
        return
    file = Path(os.environ[AGENT_PULSE])
    try:
        file.touch()
    except OSError as error:
        raise UserError(f"{AGENT_PULSE}={file}: can't be written ({error.strerror})") from None
    with regularly(lambda: _touch(file), _AGENT_SECONDS, "pulse"):
        yield


def _touch(file: Path) -> None:
    with suppress(OSError):  # a full disk is told elsewhere
        file.touch()
