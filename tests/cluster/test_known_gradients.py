"""Dense parameters after K steps of known gradients, against numpy, for each optimizer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from known import STEPS, Data, known_job
from probe_job import Left, run_probe

pytestmark = pytest.mark.cluster

RATE = 0.01


def train(tmp_path: Path, **sections: Any) -> tuple[Data, Left]:
    data = Data()
    job = known_job(tmp_path, data, **sections)
    return data, run_probe(job, tmp_path, step_by_step=True)


OPTIMIZERS = {
    "sgd": ({"name": "sgd"}, reference.sgd),
    "momentum": ({"name": "momentum", "momentum": 0.8}, lambda: reference.momentum(0.8)),
    "adagrad": ({"name": "adagrad", "epsilon": 1e-4}, lambda: reference.adagrad(1e-4)),
    "adam": (
        {"name": "adam", "beta1": 0.7, "beta2": 0.95, "epsilon": 1e-6},
        lambda: reference.adam(0.7, 0.95, 1e-6),
    ),
    "adamw": (
        # A pull may bring back a parameter that lacks the last steps, so the decay is not exact.
        {"name": "adamw", "weight_decay": 0.02},
        lambda: reference.adam(0.9, 0.999, 1e-8, decay=0.02),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense_optimizer(name: str, tmp_path: Path) -> None:
    settings, make = OPTIMIZERS[name]
    data, left = train(tmp_path, optimizer={**settings, "learning_rate": RATE})
    steps = {"w": make(), "b": make()}
    expected = left.dense("start")
    for t, gradients in enumerate(data.dense_gradients(), start=1):
        for key, gradient in zip(("w", "b"), gradients, strict=True):
            expected[key] = steps[key](expected[key], gradient, t, RATE)
    assert_moved_alike(left, expected)


def test_schedule_and_clipping(tmp_path: Path) -> None:
    schedule = {"name": "cosine", "warmup_steps": 4, "min_factor": 0.1}
    settings = {"name": "sgd", "learning_rate": RATE, "clip_norm": 0.2, "schedule": schedule}
    data, left = train(tmp_path, optimizer=settings)
    expected = left.dense("start")
    for t, gradients in enumerate(data.dense_gradients()):
        part = (t - 4) / (STEPS - 4)
        decayed = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * part))
        rate = RATE * ((t + 1) / 4 if t < 4 else decayed)
        for key, gradient in zip(("w", "b"), reference.clipped(gradients, 0.2), strict=True):
            expected[key] = expected[key] - rate * gradient
    assert_moved_alike(left, expected)


def assert_moved_alike(left: Left, expected: dict[str, np.ndarray]) -> None:
    start, end = left.dense("start"), left.dense("end")
    for key in ("w", "b"):
        moved, wanted = end[key] - start[key], expected[key] - start[key]
        assert np.abs(wanted).min() > 1e-4, "the test must move every parameter"
        np.testing.assert_allclose(moved, wanted, rtol=2e-3, atol=2e-6)
