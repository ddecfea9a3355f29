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
# A process gives a sign each second, unless the machine is very busy with waking up.
_WAKING_SECONDS = 3.0


def give_time(directory: Path, seconds: float) -> None:
    """For a process that is started in `directory`: no sign is due for so long."""
    file = directory / PULSE_FILE
    file.touch()
    due = time.time() + seconds
    os.utime(file, (due, due))


class Silence:
    """Of the process in a directory, looked at again and again.

    A machine that was asleep wakes with a sign of life that is hours old and a process in perfect
    health: it gets a moment to give the next one.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / PULSE_FILE
        self._since: float | None = None  # when it was seen first; this clock sleeps too

    def longer_than(self, seconds: float) -> float:
        """So long no sign has come that was due; 0: that is not longer."""
        silence = time.time() - self._file.stat().st_mtime
        if silence <= seconds:
            self._since = None
            return 0.0
        now = time.monotonic()
        self._since = self._since or now
        return silence if now - self._since > _WAKING_SECONDS else 0.0


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
