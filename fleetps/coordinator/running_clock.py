"""A clock that stands still while this process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# The process asks twice a second; when it did not for so long, it was stopped.
_LONGEST_SECONDS = 2.0


class RunningClock:
    """Seconds for which this process has run.

    Stopped by a signal, or asleep with its virtual machine, it heard nobody. All would seem lost
    when it wakes up, if that time counted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = clock()
        self._stopped = 0.0

    def __call__(self) -> float:
        with self._lock:
            now = self._clock()
            if now - self._asked > _LONGEST_SECONDS:
                self._stopped += now - self._asked
            self._asked = now
            return now - self._stopped
