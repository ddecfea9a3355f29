"""When a loss says that the training has diverged."""

from __future__ import annotations

import math

# A single row may well have a loss of 15: it is the mean over so many that is judged.
_ROWS = 1000
# The mean so far is that of about so many times as many rows, as losses are to fall.
_MEMORY = 100
# The loss of a model that knows nothing. Above a multiple of it nothing is learnt any more, while
# a multiple of a very small loss may be that of rows of another kind.
_KNOWS_NOTHING = math.log(2)


class LossWatch:
    """Judges the batches of one worker, in their order. Not thread-safe.

    Args:
        explode: how many times the mean so far, or ln 2 if that is more, the mean loss of some rows
            may be; None: any.
    """

    def __init__(self, explode: float | None) -> None:
        self._explode = explode
        self._rows = 0
        self._sum = 0.0
        self._mean = 0.0
        self._means = 0

    def judge(self, loss_sum: float, rows: int) -> str:
        """What is wrong, in words, once a batch with this summed loss has come; "": nothing."""
        if not math.isfinite(loss_sum):
            return f"became {loss_sum}"
        self._rows += rows
        self._sum += loss_sum
        if self._rows < _ROWS:
            return ""
        mean = self._sum / self._rows
        self._rows, self._sum = 0, 0.0
        if self._explodes(mean):
            return f"rose to {mean:.3g}, after a mean of {self._mean:.3g} (watch.explode)"
        self._means = min(self._means + 1, _MEMORY)
        self._mean += (mean - self._mean) / self._means
        return ""

    def _explodes(self, mean: float) -> bool:
        if self._explode is None or not self._means:
            return False
        return mean > self._explode * max(self._mean, _KNOWS_NOTHING)
