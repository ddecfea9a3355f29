"""The curves that a real job leaves for TensorBoard."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_job import LiveJob
from running_job import wait_until
from tensorboardX.proto.event_pb2 import Event

pytestmark = [pytest.mark.monitoring, pytest.mark.xdist_group("monitoring")]

_SECONDS = 60.0
TAGS = {
    "train/loss",
    "train/learning_rate",
    "train/gradient_norm",
    "epoch/train_loss",
    "evaluation/auc",
    "evaluation/log_loss",
    "evaluation/calibration",
    "speed/rows_per_second",
    "speed/worker-0",
    "speed/worker-1",
    "rows/embedding",
    "weights/mlp.0.w",
    "changes/mlp.0.w",
    "gradients/mlp.0.w",
}


def events(directory: Path) -> Iterator[Event]:
    """tests/unit/test_tensorboard.py checks the checksums."""
    for file in sorted(directory.glob("events.*")):
        data = file.read_bytes()
        while len(data) >= 12:
            (size,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]


def test_what_a_job_leaves(live_job: LiveJob) -> None:
    directory = live_job.run / "tensorboard"

    def tags() -> set[str]:
        return {value.tag for event in events(directory) for value in event.summary.value}

    wait_until(lambda: tags() >= TAGS, _SECONDS, "the curves", lambda: f"{TAGS - tags()}")
    numbers = [
        (value.tag, value.simple_value)
        for event in events(directory)
        for value in event.summary.value
        if value.HasField("simple_value")
    ]
    assert all(math.isfinite(number) for _, number in numbers)
    assert all(number > 0 for tag, number in numbers if tag == "train/gradient_norm")
    assert max(number for tag, number in numbers if tag == "train/learning_rate") == (
        pytest.approx(0.001, rel=0.01)
    )
