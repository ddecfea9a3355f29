"""Mistakes that only a Paddle process can see end the job with one sentence and exit code 2."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from running_job import FLEETPS, Program, job_file, nobody_left

from fleet_config.errors import EXIT_USER
from fleetps.data.dataset import load_dataset

pytestmark = pytest.mark.cluster

SECONDS = 90.0


def launch(directory: Path, data: Path, *settings: str) -> Program:
    sets = [f"--set={setting}" for setting in settings]
    file = job_file(directory, data)
    return Program([*FLEETPS, "launch", "--config", str(file), *sets], directory)


def assert_refused(program: Program, *words: str) -> None:
    assert program.exit_code(SECONDS) == EXIT_USER, program.everything()
    said = program.out + program.err
    for word in words:
        assert word in said
    assert "Traceback" not in said
    nobody_left()


def test_damaged_shard(tmp_path: Path, small_data: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(small_data, data)
    shard = load_dataset(data).split("train").shards[0]
    file = data / shard.file
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 64] = bytes(64)  # the size stays
    file.write_bytes(content)
    program = launch(tmp_path, data)
    assert_refused(program, str(file), "copy the data set again, or convert it again")
    events = (tmp_path / "runs").glob("*/events.jsonl")
    assert "task-failed" not in "".join(file.read_text() for file in events)


def test_shard_with_fewer_rows_than_promised(tmp_path: Path, small_data: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(small_data, data)
    description = data / "dataset.json"
    text = description.read_text()
    assert text.count('"rows": 20000') >= 2  # of the split and of its shard
    description.write_text(text.replace('"rows": 20000', '"rows": 20010'))
    assert_refused(launch(tmp_path, data), "train-00000", "20000", "20010")


def test_table_that_the_model_does_not_use(tmp_path: Path, small_data: Path) -> None:
    program = launch(tmp_path, small_data, "tables={embedding: {dim: 9}, other: {dim: 5}}")
    assert_refused(program, "deepfm doesn't use tables.other")


def test_loss_that_is_not_finite(tmp_path: Path, small_data: Path) -> None:
    wild = ["optimizer={name: sgd, learning_rate: 1e30}", "job.epochs=3"]
    assert_refused(launch(tmp_path, small_data, *wild), "diverged", "learning_rate", "rows")
