"""Whether a checkpoint fits a job: the first field that differs is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from checkpoint_rig import COLUMNS, data_of, job_of, make

from fleet_config.errors import UserError
from fleetps.checkpoint.choose import to_resume, to_warm_start
from fleetps.checkpoint.fits import check_data, check_resume, check_weights
from fleetps.checkpoint.format import data_record
from fleetps.data.dataset import Split

WIDE = {"dim": 5, "rule": {"name": "adam"}}
# sections of the job -> field, in the checkpoint, in the job
OTHER_WEIGHTS: list[tuple[dict[str, Any], str]] = [
    (
        {"model": {"name": "deepfm", "params": {"hidden": [4]}}},
        "model.name is dnn there and deepfm",
    ),
    (
        {"model": {"name": "dnn", "params": {"hidden": [4, 2]}}},
        "model.params.hidden is [4] there and [4, 2] here",
    ),
    (
        {"tables": {"embedding": {"dim": 4}, "wide": WIDE}},
        "tables.embedding.dim is 3 there and 4 here",
    ),
    (
        {"tables": {"embedding": {"dim": 3, "rule": {"name": "naive"}}, "wide": WIDE}},
        "tables.embedding.rule.name is adagrad there and naive here",
    ),
    ({"tables": {"embedding": {"dim": 3}}}, "tables is ['embedding', 'wide'] there and"),
    ({"mode": "geo"}, "mode is async there and geo here"),
]


@pytest.mark.parametrize(("sections", "sentence"), OTHER_WEIGHTS)
def test_other_weights(tmp_path: Path, sections: dict[str, Any], sentence: str) -> None:
    made = make(job_of(tmp_path))
    for check in (check_weights, check_resume):
        with pytest.raises(UserError) as caught:
            check(made.path, made.manifest, job_of(tmp_path, **sections), COLUMNS)
        assert f"{made.path}: doesn't fit the job: {sentence}" in str(caught.value)


OTHER_ORDER: list[tuple[dict[str, Any], str]] = [
    ({"optimizer": {"name": "sgd"}}, "optimizer.name is adam there and sgd here"),
    ({"mode": "sync"}, "mode.name is async there and sync here"),
    ({"data": {"path": "d", "batch_size": 64}}, "data.batch_size is 512 there and 64 here"),
    ({"data": {"path": "d", "task_rows": 64}}, "data.task_rows is auto there and 64 here"),
    ({"job": {"name": "small", "epochs": 3, "seed": 9}}, "job.seed is 1 there and 9 here"),
    (
        {"optimizer": {"name": "adam", "accumulate": 2}},
        "optimizer.accumulate is 1 there and 2 here",
    ),
]


@pytest.mark.parametrize(("sections", "sentence"), OTHER_ORDER)
def test_other_order_of_training(tmp_path: Path, sections: dict[str, Any], sentence: str) -> None:
    """Its weights can be used for a new job, but it can't go on."""
    made = make(job_of(tmp_path))
    job = job_of(tmp_path, **sections)
    check_weights(made.path, made.manifest, job, COLUMNS)
    with pytest.raises(UserError) as caught:
        check_resume(made.path, made.manifest, job, COLUMNS)
    assert f"{made.path}: is of another job: {sentence}" in str(caught.value)
    assert "checkpoint.warm_start" in str(caught.value)


SAME: list[dict[str, Any]] = [
    {},
    {
        "cluster": {"servers": 3, "workers": 5, "compress": "snappy"},
        "tables": {"embedding": {"dim": 3}, "wide": WIDE},
    },
    {"job": {"name": "other", "epochs": 9, "output": "elsewhere"}},
    {
        "optimizer": {
            "name": "adam",
            "learning_rate": 0.1,
            "schedule": {"name": "linear", "total_steps": 9},
        }
    },
    {"data": {"path": "moved"}},
    {"evaluate": {"every_epochs": 0}},
    {
        "tables": {
            "embedding": {"dim": 3, "rule": {"name": "adagrad", "learning_rate": 1.0}},
            "wide": WIDE,
        }
    },
]


@pytest.mark.parametrize("sections", SAME)
def test_what_may_change(tmp_path: Path, sections: dict[str, Any]) -> None:
    made = make(job_of(tmp_path))
    check_resume(made.path, made.manifest, job_of(tmp_path, **sections), COLUMNS)


def test_columns(tmp_path: Path) -> None:
    made = make(job_of(tmp_path))
    fewer = COLUMNS[:2]
    with pytest.raises(
        UserError, match=r"list of the data's columns is \['label', 'dense', 'ids'\] there"
    ):
        check_weights(made.path, made.manifest, job_of(tmp_path), fewer)
    wider = dataclasses.replace(COLUMNS[2], width=3, features=("user", "item", "shop"))
    with pytest.raises(UserError, match="width of the data's column ids is 2 there and 3 here"):
        check_weights(made.path, made.manifest, job_of(tmp_path), (*COLUMNS[:2], wider))


def test_data(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    made = make(job)
    same = dataclasses.replace(data_of(job), path=tmp_path / "copy")
    check_data(made.path, made.manifest, data_record(same))
    split = same.splits["train"]
    shard = dataclasses.replace(split.shards[0], sha256="cd" * 32)
    other = dataclasses.replace(same, splits={"train": dataclasses.replace(split, shards=(shard,))})
    with pytest.raises(UserError, match=r"was made with other data .*checkpoint\.warm_start"):
        check_data(made.path, made.manifest, data_record(other))


def test_what_a_job_file_may_name(tmp_path: Path) -> None:
    """A checkpoint, a directory of checkpoints or a run."""
    job = job_of(tmp_path)
    data = data_of(job)
    old, newest = make(job, 1), make(job, 2)
    for choose in (to_resume, to_warm_start):
        assert choose(old.path, job, data) == old
        assert choose(job.checkpoint_dir, job, data) == newest
        assert choose(job.run_dir, job, data) == newest
        with pytest.raises(UserError, match="is neither a checkpoint nor a directory with some"):
            choose(tmp_path, job, data)
        with pytest.raises(UserError, match="there is no such directory"):
            choose(tmp_path / "none", job, data)
    (newest.path / "dense.npz").write_bytes(b"")
    with pytest.raises(UserError, match=r"dense\.npz: has 0 bytes"):
        to_warm_start(job.run_dir, job, data)


def test_other_data_only_for_a_warm_start(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    made = make(job)
    other = dataclasses.replace(data_of(job), splits={"train": Split(0, ())})
    assert to_warm_start(made.path, job, other) == made
    with pytest.raises(UserError, match="was made with other data"):
        to_resume(made.path, job, other)


def test_another_optimizer_only_for_a_warm_start(tmp_path: Path) -> None:
    made = make(job_of(tmp_path))
    job = job_of(tmp_path, optimizer={"name": "momentum"})
    assert to_warm_start(made.path, job, data_of(job)) == made
    with pytest.raises(UserError, match=r"optimizer\.name is adam there and momentum here"):
        to_resume(made.path, job, data_of(job))


def test_vocabulary_of_geo(tmp_path: Path) -> None:
    """Ids are taken modulo it; it follows from the data unless it is given."""
    job = job_of(tmp_path, mode="geo")
    made = make(job)
    data = data_of(job)
    more = dataclasses.replace(data, distinct_ids=1_000_000)
    assert to_warm_start(made.path, job, data) == made
    with pytest.raises(UserError, match=r"vocabulary is 4096 there and 16777216 here; set mode"):
        to_warm_start(made.path, job, more)
    given = job_of(tmp_path, mode={"name": "geo", "vocabulary": 4096})
    assert to_warm_start(made.path, given, more) == made
