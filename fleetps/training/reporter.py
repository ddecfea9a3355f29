"""A worker's second thread: reports progress, and ends the process once the job is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from fleet_config.errors import EXIT_STOPPED, FleetError
from fleet_config.sections import ClusterSection
from fleetps.coordinator.messages import UNREACHABLE, JobState
from fleetps.coordinator.protocol import Coordinator
from fleetps.training import child, dense, stopping
from fleetps.training.gate import Gate
from fleetps.training.pulse import Pulse
from fleetps.training.step_hook import StepHook

INTERVAL = 1.0  # seconds
_POLL_SECONDS = 0.05
# Of cluster.deadlines.stop: for a task that must be done as a whole, and then for a batch.
_SHARE_OF_TASK = 0.35
_SHARE_OF_BATCH = 0.3


@dataclass(frozen=True)
class _Task:
    """`in_order`: its rows are trained in their order, so it may end behind any batch.

    `alone`: nobody else makes the same steps.
    """

    id: int
    in_order: bool
    alone: bool


class Reporter:
    """Speaks for the training threads, which are inside Paddle.

    At SIGTERM, or when the job failed or stops: each thread finishes its batch, what it learnt is
    flushed, the leases go back, the process exits 143. Only the unfinished batch is lost: what was
    done of a task counts, where that can be told. Else the task is finished if there is time.

    When the job is to end with a checkpoint, the process goes on without training: `attend` is
    called in the place of the main thread, and does not return.
    """

    def __init__(
        self,
        client: Coordinator,
        instance: str,
        hook: StepHook,
        cluster: ClusterSection,
        flush: Callable[[], None],
        attend: Callable[[], NoReturn],
        gate: Gate,
        pulse: Pulse,
    ) -> None:
        self._client = client
        self._instance = instance
        self._hook = hook
        self._cluster = cluster
        self._flush = flush
        self._attend = attend
        self._gate = gate
        self._pulse = pulse
        self._task: _Task | None = None
        self._lock = threading.Lock()
        self._ends = False
        self._at_rest = False
        self._rests = threading.Event()
        stopping.on_stop(self._stop)
        threading.Thread(target=self._run, name="reporter", daemon=True).start()

    def begin(self, task: int, *, in_order: bool, alone: bool) -> None:
        """Report on this task from now on."""
        self.rest_if_asked()
        with self._lock:
            self._task = _Task(task, in_order, alone)

    def end(self) -> None:
        """The task has ended; once this returns, no report on it is under way."""
        with self._lock:
            self._task = None

    def ends(self) -> bool:
        """The process is to end: no wait may go on."""
        return self._ends

    def rest_if_asked(self) -> None:
        """Between two tasks: does not return when the process is to end."""
        if self._ends:
            self._rests.set()
            threading.Event().wait()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(INTERVAL):
            self._pulse.beat()
            self._pulse.check()
            with self._lock:
                task = self._task
                state = self._report(task.id) if task is not None else None
            if state is not None and state.job in ("failed", "stopping"):
                self._stop()
                child.end(EXIT_STOPPED)
            if state is not None and state.ending and task is not None and task.alone:
                self._end_with_checkpoint()

    def _report(self, task: int) -> JobState:
        counts = self._hook.counts()
        try:
            return self._client.progress(
                self._instance,
                task,
                counts.rows,
                counts.steps,
                counts.loss_sum,
                self._extra(),
            )
        except FleetError as error:  # the coordinator is gone, or the loss is not finite
            child.leave(error)

    def _extra(self) -> dict[str, float]:
        norm, lost = dense.last_norm(), self._pulse.lost
        return {
            "waited": self._gate.waited,
            "learning_rate": self._hook.learning_rate,
            **({} if norm is None else {"gradient_norm": norm}),
            **({} if lost is None else {UNREACHABLE: lost.rank}),
            **self._hook.times.report(),
        }

    def _stop(self) -> None:
        begun = True
        if self._come_to_rest():
            self._flush()
            begun = not self._count_what_is_done()
        self._client.release(self._instance, begun)

    def _end_with_checkpoint(self) -> NoReturn:
        try:
            while not self._come_to_rest():
                self._pulse.beat()  # whoever asked for the end has a deadline
            self._stop()
            self._attend()
        except FleetError as error:
            child.leave(error)

    def _come_to_rest(self) -> bool:
        """Let the present task or batch be finished, and begin no other; False: it takes longer."""
        self._ends = True
        patience, start = self._cluster.deadlines.stop, time.monotonic()
        while not (self._at_rest or self._rests.wait(_POLL_SECONDS)):
            task, waited = self._task, time.monotonic() - start
            if task is not None and (task.in_order or waited > patience * _SHARE_OF_TASK):
                threads = self._cluster.threads
                seconds = _POLL_SECONDS if task.in_order else patience * _SHARE_OF_BATCH
                self._at_rest = self._hook.park(threads, seconds)
            if waited > patience * (_SHARE_OF_TASK + _SHARE_OF_BATCH):
                return self._at_rest
        return True

    def _count_what_is_done(self) -> bool:
        """Report it; False: rows were trained of which nobody can say which ones they are."""
        task, counts = self._task, self._hook.counts()
        if self._rests.is_set() or task is None:
            return True
        if not task.in_order:
            return False
        answer = self._client.part_done(
            self._instance, task.id, counts.rows, counts.steps, counts.loss_sum
        )
        return answer.accepted or counts.rows == 0
