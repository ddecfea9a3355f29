"""What a worker counts while evaluating, merged as the coordinator does, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from fleet_config.errors import UserError
from fleetps.coordinator.metrics import logit_bin, merge
from fleetps.training.evaluate import ScoreCounter, bin_of


def scored(spread: float, rows: int = 200_000) -> tuple[np.ndarray, np.ndarray]:
    """Logits as a model gives them, in float32, and labels that they predict a little."""
    random = np.random.default_rng(3)
    logits = random.normal(-1.2, spread, rows).astype(np.float32)
    labels = (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    return logits, labels


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_merged_counts_give_the_metrics_of_all_rows(spread: float) -> None:
    logits, labels = scored(spread)
    counted = []
    for part in np.array_split(np.arange(len(logits)), 7):  # seven tasks, batches of 1,000
        counter = ScoreCounter()
        for batch in np.array_split(part, len(part) // 1000):
            counter(logits[batch].reshape(-1, 1), labels[batch].reshape(-1, 1))
        assert counter.rows == len(part)
        counted.append(counter.result())
    merged = merge(counted)
    assert merged is not None
    probability = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert merged.auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-4)
    assert merged.log_loss == pytest.approx(log_loss(labels, probability), abs=1e-6)
    assert merged.calibration == pytest.approx(probability.sum() / labels.sum(), rel=1e-6)


def test_bins_are_the_coordinators() -> None:
    logits = np.random.default_rng(5).uniform(-20, 20, 10_000)
    assert bin_of(logits).tolist() == [logit_bin(logit) for logit in logits]


def test_scores_beyond_the_bins_are_counted_and_do_not_overflow() -> None:
    counter = ScoreCounter()
    counter(np.array([[-1e4], [1e4]], np.float32), np.array([[0], [1]]))
    result = counter.result()
    assert result.rows == 2
    assert result.log_loss_sum == 0
    assert sorted(result.bins.values()) == [(0, 1), (1, 0)]


def test_a_score_that_is_not_finite_is_refused() -> None:
    counter = ScoreCounter()
    counter(np.array([[0.5], [np.nan]], np.float32), np.array([[0], [1]]))
    with pytest.raises(UserError, match=r"1 of 2 scores are NaN or infinite"):
        counter.result()
