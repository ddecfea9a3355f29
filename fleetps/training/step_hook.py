"""What happens in Python once per batch: counting, the learning rate, stopping."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import paddle

from fleetps.training.loss_watch import LossWatch
from fleetps.training.padding import PADDING_LABEL
from fleetps.training.step_times import StepTimes


@dataclass(frozen=True)
class Counts:
    """Of one task. loss_sum: sum of the log loss (natural logarithm) over the rows."""

    rows: int = 0
    steps: int = 0
    loss_sum: float = 0.0


class StepHook:
    """Called by each training thread at the end of each batch.

    Args:
        wait: returns when the thread may go on to its next batch; it gets a function that says
            whether the process is to end, when no wait may go on.
        losses: says when a loss is none to go on with.
        diverged: gets the sentence then, and ends the process.
    """

    def __init__(
        self,
        wait: Callable[[Callable[[], bool]], None],
        losses: LossWatch,
        diverged: Callable[[str], NoReturn],
    ) -> None:
        self.times = StepTimes()
        self._wait = wait
        self._losses = losses
        self._diverged = diverged
        self._lock = threading.Lock()
        self._counts = Counts()
        self._task = ""
        self._padded = False
        self._rate: Callable[[int], float] | None = None
        self.learning_rate = 0.0  # of the step that is being made
        self._rate_tensor: Any = None
        self._parking = threading.Event()
        self._parked = 0
        self._parks = threading.Condition()

    def begin(
        self, task: str, rate: Callable[[int], float], rate_variable: str, *, padded: bool
    ) -> None:
        """Start a task, named for people; `rate` maps its steps (from 0) to learning rates.

        padded: some of its rows are padding.
        """
        with self._lock:
            self._counts = Counts()
            self._task = task
            self._padded = padded
            self._rate = rate
            self._rate_tensor = paddle.static.global_scope().find_var(rate_variable).get_tensor()
            self._set_rate(rate(0))

    def __call__(self, loss_sum: Any, label: Any) -> None:
        """py_func: tensors of the summed loss [] and of label [batch, 1]; padding isn't counted.

        NumPy only where nothing else will do: most of the cost of a call was its code, which no
        batch finds in the processor's caches any more.
        """
        loss = loss_sum._get_float_element(0)
        rows = label.shape()[0]
        if self._padded:
            rows -= int(np.count_nonzero(np.asarray(label) == PADDING_LABEL))
        self.times.batch_ended()
        with self._lock:
            trouble = self._losses.judge(loss, rows)
            before = self._counts
            seen = before.rows + rows
            if not trouble:
                self._counts = Counts(seen, before.steps + 1, before.loss_sum + loss)
                self._go_on_to(self._counts.steps)
        if trouble:
            self._diverged(f"the loss {trouble} within the first {seen} rows of {self._task}")
        self._wait(self._parking.is_set)
        if self._parking.is_set():
            self._park()
        self.times.batch_begins()

    def _go_on_to(self, step: int) -> None:
        assert self._rate is not None, "begin() comes before the first batch"
        rate = self._rate(step)
        if rate != self.learning_rate:  # most schedules change it seldom or never
            self._set_rate(rate)

    def _set_rate(self, rate: float) -> None:
        self.learning_rate = rate
        self._rate_tensor.set(np.array([rate], "float32"), paddle.CPUPlace())

    def counts(self) -> Counts:
        """Of the present task, up to now."""
        with self._lock:
            return self._counts

    def park(self, threads: int, timeout: float) -> bool:
        """Let every training thread finish its batch, then wait for ever: the process is to end.

        A call of Paddle's trainer can't be left half-way otherwise: an exception out of it crashes
        the next one.

        Returns:
            False if a thread was still in its batch after `timeout` seconds.
        """
        self._parking.set()
        with self._parks:
            return self._parks.wait_for(lambda: self._parked == threads, timeout)

    def _park(self) -> NoReturn:
        with self._parks:
            self._parked += 1
            self._parks.notify_all()
        while True:
            threading.Event().wait()
