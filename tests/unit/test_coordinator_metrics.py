"""Merged metrics equal scikit-learn's, however the rows were shared out."""

import math

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from fleet_config.errors import UserError
from fleetps.coordinator.messages import LOGIT_BINS, Evaluation
from fleetps.coordinator.metrics import auc, check_loss, logit_bin, merge


def _sample(rows: int, seed: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    logits = random.normal(-1, spread, rows)
    labels = random.random(rows) < 1 / (1 + np.exp(-logits * 0.5))
    return logits, labels.astype(int)


def _bins(logits: np.ndarray) -> np.ndarray:
    """As a worker computes it."""
    return np.clip(np.floor((logits + 16) * 2**16 / 32), 0, 2**16 - 1).astype(int)


def _evaluation(logits: np.ndarray, labels: np.ndarray) -> Evaluation:
    probs = 1 / (1 + np.exp(-logits))
    bins: dict[int, tuple[int, int]] = {}
    for index, label in zip(_bins(logits).tolist(), labels.tolist(), strict=True):
        negatives, positives = bins.get(index, (0, 0))
        bins[index] = (negatives + 1 - label, positives + label)
    return Evaluation(
        bins=bins,
        log_loss_sum=float(-np.log(np.where(labels == 1, probs, 1 - probs)).sum()),
        prob_sum=float(probs.sum()),
        label_sum=float(labels.sum()),
        rows=len(labels),
    )


@pytest.mark.parametrize("spread", [0.01, 0.1, 1.0, 6.0, 20.0])
def test_auc_equals_scikit_learn_on_the_same_bins_and_nearly_without(spread):
    logits, labels = _sample(20_000, seed=3, spread=spread)
    merged = merge(_evaluation(logits[part::7], labels[part::7]) for part in range(7))
    assert merged is not None
    assert merged.auc == pytest.approx(roc_auc_score(labels, _bins(logits)), abs=1e-12)
    if 0.1 <= spread <= 6.0:  # else all share a few bins, or many lie outside of them
        assert merged.auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-4)


def test_log_loss_calibration_and_rows_are_those_of_all_rows():
    logits, labels = _sample(5_000, seed=5, spread=1.5)
    probs = 1 / (1 + np.exp(-logits))
    merged = merge(
        [_evaluation(logits[:100], labels[:100]), _evaluation(logits[100:], labels[100:])]
    )
    assert merged is not None
    assert merged.rows == 5_000
    assert merged.log_loss == pytest.approx(log_loss(labels, probs), rel=1e-9)
    assert merged.calibration == pytest.approx(probs.sum() / labels.sum(), rel=1e-9)


def test_the_bin_of_a_score_is_the_one_workers_compute():
    logits = np.concatenate([np.linspace(-20, 20, 10_001), [-16, 16, 0, -1e300, 1e300]])
    assert [logit_bin(float(logit)) for logit in logits] == _bins(logits).tolist()
    assert logit_bin(-1e9) == 0
    assert logit_bin(1e9) == LOGIT_BINS - 1


def test_ties_count_one_half_and_one_label_has_no_auc():
    assert auc({5: (3, 4)}) == 0.5
    assert auc({1: (2, 0), 2: (0, 2)}) == 1.0
    assert auc({1: (2, 0)}) is None
    assert merge([]) is None


def test_no_positive_label_has_no_calibration():
    merged = merge([Evaluation(bins={1: (2, 0)}, log_loss_sum=1, prob_sum=1, label_sum=0, rows=2)])
    assert merged is not None
    assert merged.calibration is None


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_diverged_loss_is_named_with_the_mend(loss):
    with pytest.raises(UserError, match=r"task 7: the training diverged; lower optimizer"):
        check_loss(7, loss)
