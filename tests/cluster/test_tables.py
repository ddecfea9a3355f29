"""What servers keep and drop: statistics, admission, eviction, delta saves; several tables; where
rows are; compressed pushes. Everything against counts in numpy.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from known import BATCH, RANGE, STEPS, TABLE_RATE, Data, known_job
from probe_job import Left, run_local_probe, run_probe

from fleet_config.job import Job
from fleetps.data.synthetic import SyntheticSpec, make_synthetic

pytestmark = pytest.mark.cluster

NAIVE = {"name": "naive", "learning_rate": TABLE_RATE, "initial_range": RANGE}
MODEL = {"name": "weighted_gradient"}
SHOW_WEIGHT, CLICK_WEIGHT = 0.2, 1.5


WEIGHTS = {"show_weight": SHOW_WEIGHT, "click_weight": CLICK_WEIGHT}
EVICTIONS = 6  # after the end
# Each test's own table; all of them get the same ids.
TABLES: dict[str, dict[str, Any]] = {
    "whole": {"admission": {"threshold": 20.0, **WEIGHTS}, "eviction": {"decay": 0.5}},
    "fraction": {"admission": {"threshold": 22.4, **WEIGHTS}, "eviction": {"decay": 0.5}},
    "by_score": {"admission": WEIGHTS, "eviction": {"decay": 0.5, "below": 4.3}},
    "unseen": {"eviction": {"every_epochs": 2, "decay": 1.0, "unseen_epochs": 2}},
    "deltas": {"admission": WEIGHTS, "delta_threshold": 22.0},
    "decayed": {"eviction": {"decay": 0.5}, "delta_threshold": 1e-9},
}


@dataclass(frozen=True)
class Trained:
    data: Data
    left: Left

    def rows(self, moment: str, table: str) -> dict[int, list[float]]:
        """Paddle counts the tables in the order of their names."""
        return self.left.rows(moment, sorted(TABLES).index(table))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    directory = tmp_path_factory.mktemp("tables")
    data = Data(padding=True)
    tables = {name: {"dim": 3, "rule": NAIVE, **table} for name, table in TABLES.items()}
    job = known_job(directory, data, model=MODEL, tables=tables)
    return Trained(data, run_probe(job, directory, step_by_step=True, shrinks=EVICTIONS))


def scores(data: Data) -> dict[int, float]:
    return {key: _score(show, click) for key, (show, click) in counts(data).items()}


def counts(data: Data) -> dict[int, tuple[int, int]]:
    """Shows and clicks of each id."""
    found: dict[int, tuple[int, int]] = {}
    for _, pushes in data.batches():
        for key, push in pushes.items():
            show, click = found.get(key, (0, 0))
            found[key] = show + push.show, click + push.click
    return found


def _score(show: float, click: float) -> float:
    return SHOW_WEIGHT * (show - click) + CLICK_WEIGHT * click


@pytest.mark.parametrize("table", ["whole", "fraction"])
def test_admission(table: str, trained: Trained) -> None:
    """An id trains its first value alone until its score has reached the threshold."""
    data, threshold = trained.data, TABLES[table]["admission"]["threshold"]
    make = functools.partial(reference.naive_rule, TABLE_RATE)
    rows: dict[int, reference.ServerRow] = {}
    for (batch, pushes), pulled in zip(data.batches(), trained.left.pulled(table), strict=True):
        for row, values in zip(batch, pulled, strict=True):
            for (key,), found in zip(data.slots(row), values, strict=True):
                expected = rows[key].values if key in rows else np.zeros(3)
                np.testing.assert_allclose(found, expected, atol=2e-5)
        for key, push in pushes.items():
            row = rows.setdefault(key, reference.ServerRow(3, make, (-10, 10)))
            gradient = push.gradient * (1 + np.arange(3) / 2)
            row.push(gradient, push.show, push.click, lambda s, c: _score(s, c) >= threshold - 1e-9)
    admitted = {key for key, row in rows.items() if row.has_factors}
    assert 2 < len(admitted) < len(rows) - 2
    assert _with_factors(trained.rows("trained-0", table)) == admitted
    # What has decayed since is saved without its factors.
    remaining = {key for key, score in scores(data).items() if score * 0.5 >= threshold}
    assert _with_factors(trained.rows("end", table)) == remaining


def _with_factors(stored: dict[int, list[float]]) -> set[int]:
    assert {len(values) for values in stored.values()} <= {4 + 1, 4 + 3}
    return {key for key, values in stored.items() if len(values) == 4 + 3}


def test_eviction_by_score(trained: Trained) -> None:
    data, before = trained.data, trained.rows("trained-0", "by_score")
    sizes = [len(before)]
    # The first eviction is the coordinator's, after the only epoch.
    for count, moment in enumerate(["end", "shrunk-0", "shrunk-1"], start=1):
        stored = trained.rows(moment, "by_score")
        expected = {key for key, score in scores(data).items() if score * 0.5**count >= 4.3}
        assert stored.keys() == expected
        for key, values in stored.items():
            show, click = counts(data)[key]
            assert values[2:4] == pytest.approx([show * 0.5**count, click * 0.5**count])
            assert values[4:] == before[key][4:], "values stay as they are"
        sizes.append(len(stored))
    assert sizes[0] > sizes[1] > sizes[2] > sizes[3] > 0


def test_eviction_of_unseen_rows(trained: Trained) -> None:
    """Every second epoch; rows that were not seen for more than two epochs go."""
    # After epochs 2, 4 and 6, of which none saw an id, rows are at least 0, 2 and 4 epochs old.
    sizes = [len(trained.rows(f"shrunk-{count}", "unseen")) for count in range(EVICTIONS)]
    assert sizes == [len(counts(trained.data))] * 5 + [0]
    assert {values[0] for values in trained.rows("shrunk-3", "unseen").values()} == {2.0}


def test_delta_save(trained: Trained) -> None:
    """A save of mode 1 holds the rows whose score has changed by the threshold."""
    expected = {key for key, score in scores(trained.data).items() if score >= 22.0}
    assert trained.rows("delta-before", "deltas").keys() == expected
    assert 3 < len(expected) < len(counts(trained.data)) - 3


def test_delta_save_after_a_decay(trained: Trained) -> None:
    """It holds none of the rows, although all have changed: so checkpoints are compared instead."""
    everything = counts(trained.data).keys()
    assert trained.rows("delta-before", "decayed").keys() == everything
    before, after = trained.rows("end", "decayed"), trained.rows("shrunk-0", "decayed")
    assert all(after[key][2] == pytest.approx(row[2] / 2) for key, row in before.items())
    assert trained.rows("delta", "decayed") == {}


def test_eviction_after_each_epoch(tmp_path: Path) -> None:
    """As the coordinator asks for it: shows decay between epochs, and a seen row is not old."""
    data = Data(padding=True)
    eviction = {"decay": 0.5, "unseen_epochs": 1}
    tables = {
        "embedding": {"dim": 3, "rule": NAIVE, "eviction": eviction},
        "other": {"dim": 2, "rule": NAIVE},
    }
    known = {"name": "known", "epochs": 3, "output": str(tmp_path / "runs")}
    job = known_job(tmp_path, data, model=MODEL, tables=tables, job=known)
    left = run_probe(job, tmp_path)
    for table, factor in ((0, 0.5 + 0.25 + 0.125), (1, 3.0)):
        stored = left.rows("end", table)
        assert stored.keys() == counts(data).keys()
        for key, values in stored.items():
            show, click = counts(data)[key]
            assert values[2:4] == pytest.approx([show * factor, click * factor])
            assert values[0] == (1.0 if table == 0 else 0.0)


def test_tables_of_different_width_and_rule(tmp_path: Path) -> None:
    adagrad = {"name": "adagrad", "learning_rate": 0.2, "initial_g2sum": 0.5, "initial_range": 0.0}
    tables = {"narrow": {"dim": 2, "rule": NAIVE}, "wide": {"dim": 5, "rule": adagrad}}
    data = Data(tags=True, padding=True)
    job = known_job(tmp_path, data, model=MODEL, tables=tables)
    left = run_probe(job, tmp_path, step_by_step=True)
    local = run_local_probe(job, tmp_path).dense("end")
    rules = {
        "narrow": functools.partial(reference.naive_rule, TABLE_RATE),
        "wide": functools.partial(reference.adagrad_rule, 0.2, 0.5, shared=True),
    }
    for number, (name, rule) in enumerate(rules.items()):
        dim = tables[name]["dim"]
        rows: dict[int, reference.ServerRow] = {}
        for _, pushes in data.batches():
            for key, push in pushes.items():
                row = rows.setdefault(key, reference.ServerRow(dim, rule, (-10, 10)))
                row.push(push.gradient * (1 + np.arange(dim) / 2), push.show, push.click)
        stored = left.rows("end", number)
        assert stored.keys() == rows.keys()
        for key, row in rows.items():
            assert stored[key][4] == pytest.approx(row.values[0], abs=2e-5)
            start = 5 if name == "narrow" else 6  # adagrad's state of the first value
            assert stored[key][start : start + dim - 1] == pytest.approx(row.values[1:], abs=2e-5)
            mine = local[name][key % (len(local[name]) - 1)]
            assert mine[0] == pytest.approx(row.values[0], abs=2e-5)


def test_rows_are_spread_evenly(tmp_path: Path) -> None:
    path = tmp_path / "data"
    make_synthetic(path, SyntheticSpec(rows=10_000, test_rows=1, distinct_ids=400_000))
    job = Job.model_validate(
        {
            "job": {"name": "spread", "output": str(tmp_path / "runs")},
            "cluster": {"servers": 2},
            "data": {"path": str(path), "batch_size": 1000},
            "model": MODEL,
            "tables": {"embedding": {"dim": 2, "rule": NAIVE}},
            "evaluate": {"every_epochs": 0},
        }
    )
    left = run_probe(job, tmp_path)
    rows = left.rows_by_server("end")
    assert sum(rows.values()) > 50_000
    assert max(rows.values()) <= 1.02 * sum(rows.values()) / 2


def test_compressed_pushes(tmp_path: Path) -> None:
    """They arrive whole, and take less room on their way."""
    found = {}
    for compress in ("none", "snappy", "zlib"):
        data = Data()
        table = {"dim": 65, "rule": {**NAIVE, "initial_range": 0.0}}
        place = tmp_path / compress
        job = known_job(place, data, tables={"embedding": table}, cluster={"compress": compress})
        left = run_probe(job, place, step_by_step=True)
        found[compress] = (left.rows("end"), left.dense("end"), left.sent())
    rows, dense, sent = found["none"]
    assert sent > BATCH * STEPS * 65 * 4, "the test must see what was sent"
    for compress in ("snappy", "zlib"):
        assert found[compress][0] == rows
        for name, values in found[compress][1].items():
            np.testing.assert_allclose(values, dense[name], atol=1e-6)
        assert found[compress][2] < 0.7 * sent
