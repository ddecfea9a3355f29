"""Speeds and losses over a sliding window."""

import pytest

from fleetps.coordinator.speed import WINDOW_SECONDS, Meter


def test_nothing_older_than_the_window_is_kept_though_nobody_asks():
    meter = Meter()
    for second in range(1000):
        meter.add(float(second), 5, 2.5, training=True)
    assert len(meter._samples) == WINDOW_SECONDS + 1
    assert meter.rate(999.0) == 5.0
    assert meter.loss(999.0) == pytest.approx(0.5)
    assert meter.rows == 5000
