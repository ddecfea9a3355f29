"""A worker's second thread: reports progress, and ends the process once the job is over."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fleet_config.errors import EXIT_STOPPED, FleetError
from fleetps.coordinator.protocol import Coordinator
from fleetps.training import child, stopping
from fleetps.training.gate import Gate
from fleetps.training.pulse import Pulse
from fleetps.training.step_hook import StepHook

INTERVAL = 1.0  # seconds
PARK_TIMEOUT = 5.0  # seconds for a thread to finish its batch


class Reporter:
    """Speaks for the training threads, which are inside Paddle.

    At SIGTERM, or when the job failed or stops: each thread finishes its batch, what it learnt is
    flushed, the leases go back, the process exits 143.
    """

    def __init__(
        self,
        client: Coordinator,
        instance: str,
        hook: StepHook,
        threads: int,
        flush: Callable[[], None],
        gate: Gate,
        pulse: Pulse,
    ) -> None:
        self._client = client
        self._instance = instance
        self._hook = hook
        self._threads = threads
        self._flush = flush
        self._gate = gate
        self._pulse = pulse
        self._task: int | None = None
        self._lock = threading.Lock()
        stopping.on_stop(self._stop)
        threading.Thread(target=self._run, name="reporter", daemon=True).start()

    def begin(self, task: int) -> None:
        """Report on this task from now on."""
        with self._lock:
            self._task = task

    def end(self) -> None:
        """The task has ended; once this returns, no report on it is under way."""
        with self._lock:
            self._task = None

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(INTERVAL):
            self._pulse.beat()
            self._pulse.check()
            with self._lock:
                over = self._task is not None and self._report(self._task)
            if over:
                self._stop()
                child.end(EXIT_STOPPED)

    def _report(self, task: int) -> bool:
        """Whether the job is over."""
        counts = self._hook.counts()
        try:
            state = self._client.progress(
                self._instance,
                task,
                counts.rows,
                counts.steps,
                counts.loss_sum,
                {"waited": self._gate.waited, **self._hook.times.report()},
            )
        except FleetError as error:  # the coordinator is gone, or the loss is not finite
            child.leave(error)
        return state.job in ("failed", "stopping")

    def _stop(self) -> None:
        if self._task is not None and self._hook.park(self._threads, PARK_TIMEOUT):
            self._flush()
        self._client.release(self._instance)
