"""What counts and divides in constant memory: distinct ids, rare values, splits, the map."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from fleetps.data.distinct import DistinctCounter
from fleetps.data.parallel import ordered_map
from fleetps.data.rare import ValueCounter
from fleetps.data.splits import TestRows


def random_ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**62, count)


@pytest.mark.parametrize("count", [0, 1, 50, 1000, 30_000, 60_000, 1_000_000])
def test_distinct_ids_are_estimated_within_three_percent(count: int) -> None:
    ids = random_ids(count)
    counter = DistinctCounter()
    counter.add(ids)
    counter.add(ids[: count // 2])
    assert counter.estimate() == pytest.approx(len(set(ids.tolist())), rel=0.03, abs=1)


def test_the_rarest_ids_have_the_highest_rank() -> None:
    counter = DistinctCounter()
    counter.add(np.array([0, 2**48 - 1, 2**62 - 1], np.int64))
    # Register 0 saw an id without any 1 behind its index, the last register one with only 1s.
    assert counter._registers[0] == 49
    assert counter._registers[-1] == 1


def test_values_are_counted_over_calls() -> None:
    random = np.random.default_rng(1)
    pool = random_ids(2000)
    counter = ValueCounter()
    truth: Counter[int] = Counter()
    for _ in range(5):
        ids = random.choice(pool, 300, replace=True)
        counts = random.integers(0, 4, 300)
        counter.add(ids, counts)
        for i, count in zip(ids.tolist(), counts.tolist(), strict=True):
            truth[i] += count
    for least in (1, 2, 5):
        expected = [truth[i] >= least for i in pool.tolist()]
        assert counter.at_least(pool, least).tolist() == expected


def test_counts_stop_at_their_limit() -> None:
    counter = ValueCounter()
    ids = np.array([5], np.int64)
    for _ in range(3):
        counter.add(ids, np.array([200]))
    assert counter.at_least(ids, 255).tolist() == [True]


def test_ids_that_share_one_place_are_told_apart() -> None:
    counter = ValueCounter()
    one, same_low_bits = 123, 123 + (1 << 30)
    counter.add(np.array([one]), np.array([9]))
    assert counter.at_least(np.array([one, same_low_bits]), 2).tolist() == [True, False]


def test_the_last_rows_are_the_test_rows_in_time() -> None:
    test_rows = TestRows("time", 0.2, 1, 10_000)
    assert test_rows.mask(np.array([0, 7999, 8000, 9999])).tolist() == [False, False, True, True]


def test_a_random_split_takes_each_row_with_the_same_chance() -> None:
    rows = np.arange(200_000)
    mask = TestRows("random", 0.3, 7, None).mask(rows)
    for part in (rows < 1000, rows % 2 == 0, rows >= 150_000):
        expected = 0.3 * part.sum()
        assert mask[part].sum() == pytest.approx(expected, abs=5 * np.sqrt(expected))
    other = TestRows("random", 0.3, 8, None).mask(rows)
    assert (mask & other).mean() == pytest.approx(0.09, abs=0.01)
    assert not TestRows("random", 0.0, 7, None).mask(rows).any()


def test_a_random_split_stays_what_it_was() -> None:
    chosen = np.flatnonzero(TestRows("random", 0.2, 1, None).mask(np.arange(60)))
    assert chosen.tolist() == [8, 15, 17, 21, 25, 28, 30, 41, 42, 45, 48, 49, 51, 53]


def test_the_map_keeps_the_order_and_reads_only_a_little_ahead() -> None:
    read = []

    def items() -> Iterator[int]:
        for item in range(100):
            read.append(item)
            yield item

    results = ordered_map(lambda item: item * item, items())
    assert next(results) == 0
    assert len(read) < 100
    assert list(results) == [item * item for item in range(1, 100)]


def test_an_error_in_the_map_arrives_and_ends_its_threads() -> None:
    before = threading.active_count()

    def fail(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    results = ordered_map(fail, range(1000))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    assert threading.active_count() == before
