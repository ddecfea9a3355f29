"""When a loss says that the training has diverged, and how long batches take."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
import pytest

from fleetps.training.loss_watch import LossWatch
from fleetps.training.step_times import StepTimes


def feed(watch: LossWatch, means: list[float], rows: int = 1000) -> list[str]:
    return [watch.judge(mean * rows, rows) for mean in means]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number(loss: float) -> None:
    assert LossWatch(None).judge(loss, 8) == f"became {loss}"


class TestExplosion:
    def test_it_is_measured_by_the_mean_so_far(self) -> None:
        watch = LossWatch(10.0)
        assert feed(watch, [2.0, 1.0, 0.9, 12.9]) == ["", "", "", ""]  # the mean was 1.3
        assert feed(watch, [43.0])[0] == "rose to 43, after a mean of 4.2 (watch.explode)"

    def test_a_small_mean_counts_as_that_of_a_model_that_knows_nothing(self) -> None:
        watch = LossWatch(10.0)
        assert feed(watch, [0.01] * 50 + [6.9]) == [""] * 51
        assert feed(LossWatch(10.0), [0.01] * 50 + [7.0])[-1]

    def test_single_rows_may_have_a_great_loss(self) -> None:
        random = np.random.default_rng(3)
        logits = random.normal(-4, 2, 50_000)
        clicks = random.random(50_000) < 1 / (1 + np.exp(-logits))
        losses = np.logaddexp(0, np.where(clicks, -logits, logits))
        assert losses.max() > 10 * max(losses.mean(), math.log(2))
        watch = LossWatch(10.0)
        assert not any(watch.judge(float(loss), 1) for loss in losses)

    def test_a_slow_one_is_seen_too(self) -> None:
        doubling = [0.5] * 200 + [0.5 * 2**k for k in range(1, 12)]
        assert any(feed(LossWatch(10.0), doubling))

    def test_a_loss_that_falls_from_far_above_is_none(self) -> None:
        assert not any(feed(LossWatch(10.0), [1e6, 1e4, 1e2, 1.0, 0.5]))

    def test_it_can_be_switched_off(self) -> None:
        assert not any(feed(LossWatch(None), [0.5, 1e30]))


class TestStepTimes:
    def test_waiting_is_told_from_work(self) -> None:
        times = StepTimes()
        times.task_begins()
        times.batch_ended()
        for busy in (True, False):
            before = times.report()
            times.batch_begins()
            start = time.thread_time()
            while busy and time.thread_time() < start + 0.05:
                pass
            if not busy:
                time.sleep(0.05)
            times.batch_ended()
            after = times.report()
            took = after["step_seconds"] - before["step_seconds"]
            idle = after["idle_seconds"] - before["idle_seconds"]
            assert after["steps"] == before["steps"] + 1
            assert took >= 0.05
            # Of a busy batch all but 0.05 s; of the other all but the little that waking up takes.
            assert idle == pytest.approx(took - 0.05 if busy else took, abs=0.02)

    def test_the_batch_that_a_thread_is_at_has_an_age(self) -> None:
        times = StepTimes()
        assert times.report()["step_age"] == 0.0
        times.task_begins()
        time.sleep(0.01)
        assert times.report()["step_age"] >= 0.01
        times.task_ended()
        assert times.report()["step_age"] == 0.0

    def test_each_thread_has_its_own(self) -> None:
        times = StepTimes()

        def work() -> None:
            for _ in range(100):
                times.batch_begins()
                times.batch_ended()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert times.report()["steps"] == 300
