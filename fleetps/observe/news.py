"""What is worth a line since the last look at a job."""

import time
from collections.abc import Callable

from fleetps.coordinator.reports import EpochResult, Status


class News:
    """Which epochs have ended, and what went wrong and was mended, since the last look."""

    def __init__(self) -> None:
        self._epochs = 0
        self._lost = 0
        self._recovered = 0
        self._failed = 0
        self._noticed = 0

    def epochs(self, status: Status) -> tuple[EpochResult, ...]:
        new = status.history[self._epochs :]
        self._epochs = len(status.history)
        return new

    def troubles(self, status: Status) -> tuple[str, ...]:
        """Workers that were lost or are slow, generations that began, checkpoints that failed."""
        recovered = status.recoveries[self._recovered :]
        self._recovered = len(status.recoveries)
        checkpoint = status.checkpoint
        failed = checkpoint.failures > self._failed
        self._failed = checkpoint.failures
        failures = (f"a checkpoint failed: {checkpoint.reason}",) if failed else ()
        return (*self.losses(status), *recovered, *failures, *self._notices(status))

    def _notices(self, status: Status) -> tuple[str, ...]:
        new = status.notices_so_far - self._noticed
        self._noticed = status.notices_so_far
        return status.notices[-new:] if new > 0 else ()

    def losses(self, status: Status) -> tuple[str, ...]:
        new = status.workers_lost - self._lost
        self._lost = status.workers_lost
        return status.losses[-new:] if new > 0 else ()


class Periodic:
    """Lets a progress line through every so often, and whenever the job's state changes."""

    def __init__(self, every: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._clock = clock
        self._next = 0.0
        self._last_job = ""

    def due(self, status: Status) -> bool:
        now = self._clock()
        if now < self._next and status.job == self._last_job:
            return False
        self._next, self._last_job = now + self._every, status.job
        return True
