"""Synthetic data: the same for a seed, and what it says about itself is true."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from data_reference import as_tuples, id_of, read_text
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics import roc_auc_score

from fleet_config.errors import UserError
from fleetps.data import parallel
from fleetps.data.scores import auc, log_loss
from fleetps.data.synthetic import COLUMNS, SyntheticSpec, TrueModel, make_synthetic

SPEC = SyntheticSpec(rows=2000, test_rows=500, seed=3, distinct_ids=2600)


def test_neither_shards_nor_threads_change_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make_synthetic(tmp_path / "one", SPEC)
    monkeypatch.setattr(parallel, "available_cores", lambda: 5)
    many = make_synthetic(
        tmp_path / "many",
        SyntheticSpec(
            rows=2000, test_rows=500, seed=3, distinct_ids=2600, shard_rows=123, compress="gzip"
        ),
    )
    assert len(many.splits["train"].shards) == 17
    for split in ("train", "test"):
        assert read_text(one, split) == read_text(many, split)
    assert one.source["best_auc"] == many.source["best_auc"]
    assert one.distinct_ids == many.distinct_ids


def test_fewer_rows_are_the_first_ones_of_more(tmp_path: Path) -> None:
    less = make_synthetic(
        tmp_path / "less", SyntheticSpec(rows=100, test_rows=0, seed=3, distinct_ids=2600)
    )
    more = make_synthetic(tmp_path / "more", SPEC)
    assert read_text(more, "train").startswith(read_text(less, "train"))
    assert list(less.splits) == ["train"]
    assert "best_auc" not in less.source


def test_another_seed_gives_other_rows(tmp_path: Path) -> None:
    made = [make_synthetic(tmp_path / str(seed), SyntheticSpec(50, 50, seed)) for seed in (1, 2)]
    texts = {read_text(dataset, split) for dataset in made for split in ("train", "test")}
    assert len(texts) == 4


def test_the_best_auc_is_that_of_the_true_probability(tmp_path: Path) -> None:
    dataset = make_synthetic(tmp_path / "data", SPEC)
    drawn = TrueModel(SPEC).chunk(2, 0).head(500)
    rows = as_tuples(dataset, "test")
    assert [row[0] for row in rows] == drawn.labels.tolist()
    assert [row[2][0] for row in rows] == [id_of(str(v), "C1") for v in drawn.values[0]]
    assert [row[2][25] for row in rows] == [id_of(str(v), "C26") for v in drawn.values[25]]
    assert [row[1] for row in rows] == [[float(f"{x:.6g}") for x in row] for row in drawn.dense]
    best = roc_auc_score(drawn.labels, drawn.probability)
    assert dataset.source["best_auc"] == pytest.approx(best, abs=1e-12)
    assert dataset.source["best_log_loss"] == pytest.approx(
        sklearn_log_loss(drawn.labels, drawn.probability), abs=1e-12
    )
    assert dataset.columns == COLUMNS
    assert dataset.source["options"]["seed"] == 3


@pytest.mark.parametrize("click_rate", [0.05, 0.25, 0.5])
def test_labels_follow_the_true_probability(click_rate: float) -> None:
    model = TrueModel(SyntheticSpec(click_rate=click_rate))
    chunks = [model.chunk(1, number) for number in range(3)]
    labels = np.concatenate([chunk.labels for chunk in chunks])
    probability = np.concatenate([chunk.probability for chunk in chunks])
    spread = 4 * np.sqrt(click_rate / len(labels))
    assert labels.mean() == pytest.approx(click_rate, abs=2 * spread)
    # Calibrated in every tenth of the predictions, not only over all.
    order = np.argsort(probability)
    for part in np.array_split(order, 10):
        assert labels[part].mean() == pytest.approx(probability[part].mean(), abs=0.035)
    assert 0.77 < auc(labels, probability) < 0.87


def test_ids_follow_zipfs_law() -> None:
    spec = SyntheticSpec(distinct_ids=26 * 50, zipf=1.3)
    values = TrueModel(spec).chunk(1, 0).values
    weights = [1 / rank**1.3 for rank in range(1, 51)]
    for slot in (0, 25):
        counts = Counter(values[slot].tolist())
        assert set(counts) <= set(range(50))
        for rank in (0, 1, 5, 20):
            share = weights[rank] / sum(weights)
            assert counts[rank] / values.shape[1] == pytest.approx(share, rel=0.25)


def test_the_number_of_distinct_ids_is_over_all_slots(tmp_path: Path) -> None:
    dataset = make_synthetic(
        tmp_path / "data", SyntheticSpec(rows=5000, test_rows=0, distinct_ids=26 * 10)
    )
    ids = {i for row in as_tuples(dataset, "train") for i in row[2]}
    assert len(ids) == 260
    assert dataset.distinct_ids == pytest.approx(260, abs=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows must be at least 1"),
        ({"test_rows": -1}, "test_rows must be at least 0"),
        ({"distinct_ids": 51}, "distinct_ids must be at least 52"),
        ({"shard_rows": 0}, "shard_rows must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"click_rate": 1.0}, "click_rate must lie between 0 and 1"),
        ({"zipf": -1.0}, "zipf must not be negative"),
    ],
)
def test_impossible_wishes_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=f"synthetic data: {message}"):
        SyntheticSpec(**options)  # type: ignore[arg-type]


def test_scores_agree_with_scikit_learn() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 1000).astype(np.int8)
    scores = random.integers(1, 20, 1000) / 20  # with many ties
    assert auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert log_loss(labels, scores) == pytest.approx(sklearn_log_loss(labels, scores), abs=1e-12)
