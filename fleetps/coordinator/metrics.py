"""Merging the workers' histograms of scores into the metrics of the whole evaluation.

A score is counted by its logit, see `messages.LOGIT_BINS`; the counts are integers, so the merged
result does not depend on how the rows were shared out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet_config.errors import UserError
from fleetps.coordinator.messages import LOGIT_BINS, LOGIT_LIMIT, Evaluation


@dataclass(frozen=True)
class Metrics:
    rows: int
    auc: float | None  # None: only one label occurred, so there is nothing to rank
    log_loss: float
    calibration: float | None  # None: no positive label


def logit_bin(logit: float) -> int:
    """The bin of one score: the definition that every worker must follow."""
    index = math.floor((logit + LOGIT_LIMIT) * LOGIT_BINS / (2 * LOGIT_LIMIT))
    return min(max(index, 0), LOGIT_BINS - 1)


def check_loss(task_id: int, loss_sum: float) -> None:
    """A loss that is no number cannot be reported, and training on is of no use."""
    if not math.isfinite(loss_sum):
        raise UserError(
            f"the loss became {loss_sum} in task {task_id}: the training diverged; lower "
            "optimizer.learning_rate or the tables' learning_rate, or set optimizer.clip_norm"
        )


def merge(evaluations: Iterable[Evaluation]) -> Metrics | None:
    """The metrics over all rows of the evaluations; None without rows."""
    bins: dict[int, tuple[int, int]] = {}
    rows = 0
    log_losses, probs, labels = [], [], []
    for evaluation in evaluations:
        rows += evaluation.rows
        log_losses.append(evaluation.log_loss_sum)
        probs.append(evaluation.prob_sum)
        labels.append(evaluation.label_sum)
        for index, (negatives, positives) in evaluation.bins.items():
            seen = bins.get(index, (0, 0))
            bins[index] = (seen[0] + negatives, seen[1] + positives)
    if rows == 0:
        return None
    label_sum = math.fsum(labels)
    return Metrics(
        rows=rows,
        auc=auc(bins),
        log_loss=math.fsum(log_losses) / rows,
        calibration=math.fsum(probs) / label_sum if label_sum else None,
    )


def auc(bins: Mapping[int, tuple[int, int]]) -> float | None:
    """The area under the ROC curve, exact in integers; rows of one bin are tied (one half)."""
    doubled = below = positives = 0
    for index in sorted(bins):
        negatives_here, positives_here = bins[index]
        doubled += positives_here * (2 * below + negatives_here)
        below += negatives_here
        positives += positives_here
    return doubled / (2 * below * positives) if below and positives else None
