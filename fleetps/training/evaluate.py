"""Counts scores while evaluating; the coordinator merges what all workers counted."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet_config.errors import UserError
from fleetps.coordinator.messages import LOGIT_BINS, LOGIT_LIMIT, Evaluation

Floats = npt.NDArray[np.float64]


class ScoreCounter:
    """py_func of the evaluation program: integer histograms of the logit by label, and sums."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Begin a task."""
        self._bins = np.zeros((LOGIT_BINS, 2), np.int64)
        self._log_loss = self._probability = 0.0
        self._positives = self._rows = self._not_finite = 0

    def __call__(self, logit: Any, label: Any) -> None:
        """Logit [batch, 1] float32, label [batch, 1] int64."""
        z = np.asarray(logit, dtype=np.float64).reshape(-1)
        y = np.asarray(label, dtype=np.int64).reshape(-1)
        finite = np.isfinite(z)
        with self._lock:
            self._rows += len(z)
            self._not_finite += int((~finite).sum())
            np.add.at(self._bins, (bin_of(z[finite]), y[finite]), 1)
            self._log_loss += float(log_loss(z[finite], y[finite]).sum())
            self._probability += float((0.5 + 0.5 * np.tanh(0.5 * z[finite])).sum())
            self._positives += int(y.sum())

    @property
    def rows(self) -> int:
        """Rows scored since `reset`."""
        return self._rows

    def result(self) -> Evaluation:
        """What was counted.

        Raises:
            UserError: a score was NaN or infinite.
        """
        if self._not_finite:
            raise UserError(
                f"{self._not_finite} of {self._rows} scores are NaN or infinite: "
                "the model has diverged; lower the learning rates"
            )
        used = np.flatnonzero(self._bins.any(axis=1))
        return Evaluation(
            bins={int(i): (int(self._bins[i, 0]), int(self._bins[i, 1])) for i in used},
            log_loss_sum=self._log_loss,
            prob_sum=self._probability,
            label_sum=self._positives,
            rows=self._rows,
        )


def bin_of(logits: Floats) -> npt.NDArray[np.int64]:
    """Index of each logit's bin (see coordinator.messages.LOGIT_BINS)."""
    index = np.floor((logits + LOGIT_LIMIT) * (LOGIT_BINS / (2 * LOGIT_LIMIT)))
    return np.asarray(np.clip(index, 0, LOGIT_BINS - 1), np.int64)


def log_loss(logits: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    """-log p(label) per row, without overflow: max(z, 0) - z * y + log(1 + exp(-|z|))."""
    return np.asarray(np.maximum(logits, 0) - logits * labels + np.log1p(np.exp(-np.abs(logits))))
