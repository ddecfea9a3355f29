"""Files by which a worker process shows its agent that it lives, and that it gets work done."""

import os
import time
from pathlib import Path

PULSE_FILE = "pulse"  # by its time of change
WORKED_FILE = "worked"  # there once a task is done


def give_time(directory: Path, seconds: float) -> None:
    """For a process that is started in `directory`: no sign is due for so long."""
    file = directory / PULSE_FILE
    file.touch()
    due = time.time() + seconds
    os.utime(file, (due, due))


def silent_for(directory: Path) -> float:
    """Seconds since the process in `directory` was to give a sign; less than 0: none is due yet."""
    return time.time() - (directory / PULSE_FILE).stat().st_mtime
