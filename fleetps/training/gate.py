"""Mode `bounded`: no worker gets more than `staleness` steps ahead of the slowest.

The coordinator keeps a clock per worker. A worker tells it every `check_every` steps how far it is,
and is told how far it may go (stale synchronous parallel: Ho et al., 2013).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fleet_config.errors import FleetError, TryAgain
from fleet_config.job import Job
from fleet_config.modes import BoundedMode
from fleetps.coordinator.protocol import Coordinator
from fleetps.training import child
from fleetps.training.pulse import Pulse


class Gate:
    """Lets the training threads of one worker go on, or wait.

    A batch is started only with a ticket: the number of the step that it will be. A ticket is
    valid up to the limit that the coordinator gave.

    In an epoch of another mode every thread goes on at once.
    """

    def __init__(self, client: Coordinator, instance: str, job: Job, pulse: Pulse) -> None:
        self._client = client
        self._instance = instance
        self._job = job
        self._pulse = pulse
        self._lock = threading.Lock()
        self._mode: BoundedMode | None = None
        self._epoch = -1
        self._done = self._tickets = self._limit = self._told = 0
        self._waited = 0.0

    @property
    def waited(self) -> float:
        """Seconds in which a thread of this worker waited for slower workers, in the whole job."""
        return self._waited

    def begin(self, epoch: int, ending: Callable[[], bool]) -> None:
        """Before a task: every thread's first batch needs a ticket. `ending`: see `StepHook`."""
        mode = self._job.mode_of(epoch)
        self._mode = mode if isinstance(mode, BoundedMode) else None
        if self._mode is None:
            return
        with self._lock:
            if epoch != self._epoch:
                self._epoch, self._done, self._told = epoch, 0, 0
            self._limit = 0  # whoever was idle has left the clock, and enters it anew
            self._tickets = self._done + self._job.cluster.threads
            self._wait(ending)

    def after_batch(self, ending: Callable[[], bool]) -> None:
        """`StepHook`'s wait: a batch has ended; returns when the thread may start its next one."""
        if self._mode is None:
            return
        with self._lock:
            self._done += 1
            self._tickets += 1
            if self._done - self._told >= self._mode.check_every:
                self._ask()
            self._wait(ending)

    def _wait(self, ending: Callable[[], bool]) -> None:
        start = time.monotonic()
        while self._tickets > self._limit and not ending():
            pause = self._ask()
            if self._tickets <= self._limit:
                break
            if time.monotonic() - start > self._job.cluster.deadlines.barrier:
                child.leave(TryAgain(self._too_long()))
            time.sleep(pause)
            self._pulse.step()
            self._waited += pause

    def _ask(self) -> float:
        """Tell the coordinator how far we are; returns the seconds to wait before asking again."""
        try:
            clock = self._client.clock(self._instance, self._epoch, self._done)
        except FleetError as error:  # the coordinator is gone; no exception may pass into Paddle
            child.leave(error)
        self._told = self._done
        self._limit = clock.limit
        return clock.poll

    def _too_long(self) -> str:
        clocks = {f"worker {w.rank}": w.clock for w in self._client.status().workers}
        return (
            f"waited {self._job.cluster.deadlines.barrier:g} s (cluster.deadlines.barrier) for "
            f"slower workers to come within mode.staleness; the clocks: {clocks}"
        )
