"""AUC and log loss of known probabilities: the best that a model of synthetic data can reach."""

import numpy as np
import numpy.typing as npt


def auc(labels: npt.NDArray[np.int8], scores: npt.NDArray[np.float64]) -> float:
    """Return the area under the ROC curve; a tie counts half."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives = int(labels.sum())
    negatives = len(labels) - positives
    won = float(ranks[labels == 1].sum()) - positives * (positives + 1) / 2
    return won / (positives * negatives)


def log_loss(labels: npt.NDArray[np.int8], probability: npt.NDArray[np.float64]) -> float:
    """Return the mean negative log likelihood."""
    return float(-np.mean(np.log(np.where(labels == 1, probability, 1.0 - probability))))
