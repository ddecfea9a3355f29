"""How long a worker's batches take, and how much of that its threads only waited."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass


@dataclass
class _Batch:
    """One that a thread is at: when it began, and the processor time of the thread until then."""

    began: float
    cpu: float


class StepTimes:
    """Called by the training threads. A batch lasts from the moment at which its thread was free to
    start it to that at which its update is made; waiting for slower workers isn't in it.

    What a thread doesn't spend on the processor it waits: for rows from the servers, for the other
    workers of its group, or for a core. Of the first batch of a task only the time is known.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: dict[int, _Batch] = {}
        self._task_began: float | None = None  # until the first batch of the task ends
        self._steps = 0
        self._seconds = self._idle = 0.0

    def task_begins(self) -> None:
        """All threads are about to begin their first batches."""
        with self._lock:
            self._batches.clear()
            self._task_began = time.monotonic()

    def batch_ended(self) -> None:
        """Of the calling thread."""
        now, cpu = time.monotonic(), time.thread_time()
        with self._lock:
            batch = self._batches.pop(threading.get_ident(), None)
            if batch is not None:
                took = now - batch.began
                self._idle += max(took - (cpu - batch.cpu), 0.0)
            elif self._task_began is not None:
                took = now - self._task_began
            else:
                return  # another thread's first batch has ended before: when did this one begin?
            self._task_began = None
            self._steps += 1
            self._seconds += took

    def batch_begins(self) -> None:
        """Of the calling thread."""
        batch = _Batch(time.monotonic(), time.thread_time())
        with self._lock:
            self._batches[threading.get_ident()] = batch

    def task_ended(self) -> None:
        """No thread is at a batch."""
        with self._lock:
            self._batches.clear()
            self._task_began = None

    def report(self) -> dict[str, float]:
        """Sums of this process so far, and what its machine has to say.

        `step_age`: seconds since a thread began the batch that it is at, the longest of all.
        `load`: the load average of the last minute.
        """
        now = time.monotonic()
        with self._lock:
            begun = [batch.began for batch in self._batches.values()]
            if self._task_began is not None:
                begun.append(self._task_began)
            steps, seconds, idle = self._steps, self._seconds, self._idle
        return {
            "steps": steps,
            "step_seconds": seconds,
            "idle_seconds": idle,
            "step_age": now - min(begun, default=now),
            "load": os.getloadavg()[0],
            "cores": os.cpu_count() or 1,
        }
