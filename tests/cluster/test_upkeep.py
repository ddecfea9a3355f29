"""Deltas and copies of checkpoints in a job as a user runs it, and what can be made of them."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from running_job import FLEETPS, START_SECONDS, Program, job_file, nobody_left, wait_until

from fleet_config.errors import EXIT_STOPPED
from fleet_config.job import Job
from fleetps.checkpoint.chain import verify_chain
from fleetps.checkpoint.mirror import Mirror, fetch_newest
from fleetps.checkpoint.store import Checkpoints
from fleetps.data.synthetic import SyntheticSpec, make_synthetic

pytestmark = pytest.mark.cluster

EPOCHS = 3
ROWS = 20_000


def launch(file: Path, label: str, *settings: str) -> Program:
    command = [*FLEETPS, "launch", "--config", str(file), "--set", "data.task_rows=2000"]
    for setting in settings:
        command += ["--set", setting]
    return Program(command, file.parent, label=label)


def events(run_dir: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]


def test_a_job_whose_directory_is_lost(tmp_path: Path) -> None:
    """It is stopped and its directory removed; it goes on from what went to the mirror at last."""
    data = tmp_path / "data"  # of which a few tasks have a part of the ids
    make_synthetic(data, SyntheticSpec(rows=ROWS, test_rows=1_000, distinct_ids=60_000))
    file = job_file(tmp_path, data, epochs=EPOCHS, servers=2)
    url = f"file://{tmp_path}/mirror"
    settings = (
        "checkpoint.every={epochs: null, tasks: 3}",
        "checkpoint.full_every=4",
        "checkpoint.keep=4",  # one of which is full at most, except the last
        f"checkpoint.mirror={url}",
        "data.batch_size=16",  # so that it is far from its end when it is stopped
    )
    mirror = Mirror(url, "job")
    first = launch(file, "first", *settings)
    wait_until(lambda: len(mirror.list()) >= 2, START_SECONDS, "two copies", first.everything)
    first.send(signal.SIGTERM)
    assert first.exit_code() == EXIT_STOPPED, first.everything()
    nobody_left()
    run_dir = tmp_path / "runs" / "job"
    last = Checkpoints(run_dir / "checkpoints").list()[0]
    shutil.rmtree(run_dir)

    second = launch(file, "second", *settings)
    assert second.exit_code(START_SECONDS) == 0, second.everything()
    nobody_left()
    kinds = Counter(event["kind"] for event in events(run_dir))
    (resumed,) = [event["text"] for event in events(run_dir) if event["kind"] == "resumed"]
    assert last.name in resumed
    assert kinds["mirrored"] >= 1
    assert not {"mirror-failed", "deltas-failed", "upkeep-failed"} & kinds.keys()
    result = json.loads((run_dir / "result.json").read_text())
    assert [epoch["train_rows"] for epoch in result["history"]] == [ROWS] * EPOCHS

    job = Job.model_validate_json((run_dir / "job.json").read_bytes())
    found = Checkpoints(job.checkpoint_dir).list()
    assert found[0].manifest.progress["rows"] > EPOCHS * ROWS / 2
    assert found[0].manifest.kind == "full"
    assert "delta" in {one.manifest.kind for one in found}
    for one in found:
        verify_chain(one)
    # The last one got there too, before the job ended.
    assert mirror.list()[0].name == found[0].name
    fetched = fetch_newest(mirror, Checkpoints(tmp_path / "fetched"))
    assert fetched is not None
    verify_chain(fetched)
    tables = fetched.manifest.tables["embedding"], found[0].manifest.tables["embedding"]
    assert tables[0].rows == tables[1].rows


def test_a_warm_start(small_data: Path, tmp_path: Path) -> None:
    """Another job, other data and another optimizer; the weights are those of the first."""
    first_file = job_file(tmp_path, small_data, name="yesterday")
    every_epoch = "checkpoint.every={epochs: 1}"
    first = launch(first_file, "first", every_epoch)
    assert first.exit_code(START_SECONDS) == 0, first.everything()
    yesterday = Checkpoints(tmp_path / "runs/yesterday/checkpoints").list()[0]

    data = tmp_path / "other"
    make_synthetic(data, SyntheticSpec(rows=4_000, test_rows=1_000, distinct_ids=5_200, seed=9))
    file = job_file(tmp_path, data, name="today", servers=2)
    second = launch(
        file,
        "second",
        every_epoch,
        f"checkpoint.warm_start={tmp_path}/runs/yesterday",
        "optimizer={name: momentum, learning_rate: 1.0e-30}",
    )
    assert second.exit_code(START_SECONDS) == 0, second.everything()
    nobody_left()
    run_dir = tmp_path / "runs/today"
    warm = [event["text"] for event in events(run_dir) if event["kind"] == "warm-start"]
    assert len(warm) == 1
    assert "runs/yesterday/checkpoints/000001-" in warm[0]
    result = json.loads((run_dir / "result.json").read_text())
    assert [epoch["train_rows"] for epoch in result["history"]] == [4_000]
    today = Checkpoints(run_dir / "checkpoints").list()[0]
    assert today.manifest.progress["rows"] == 4_000
    rows = [one.manifest.tables["embedding"].rows for one in (today, yesterday)]
    assert rows[0] >= rows[1]
    # What nothing has changed since is as it was: the dense parameters, with such a rate.
    with np.load(today.dense) as after, np.load(yesterday.dense) as before:
        assert after.files == before.files
        for name in after.files:
            np.testing.assert_array_equal(after[name], before[name])
