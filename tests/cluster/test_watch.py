"""What is watched: losses that are no numbers, slow workers, jobs that stand still, hung ones."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from running_job import (
    FLEETPS,
    ROOT,
    TRAIN,
    Program,
    events,
    job_file,
    nobody_left,
    one,
    wait_until,
)

from fleetps.system.process import Child

pytestmark = pytest.mark.cluster

ROWS, TEST_ROWS, TASK_ROWS = 8_000, 1_000, 500
BAD_ROW = 5_321  # from 1, as people count


def data_with_a_row_that_spoils(path: Path) -> None:
    """What a converter would refuse: a dense value that is no number."""
    path.mkdir()
    random = np.random.default_rng(11)
    splits = {}
    for split, rows in (("train", ROWS), ("test", TEST_ROWS)):
        ids = random.integers(1, 200, (rows, 2))
        labels = random.random(rows) < np.where(ids[:, 0] < 100, 0.1, 0.7)
        dense = [f"{value:.3f}" for value in random.normal(size=rows)]
        if split == "train":
            dense[BAD_ROW - 1] = "nan"
        lines = [
            f"1 {int(label)} 1 {value} 2 {pair[0]} {pair[1] + 200}\n"
            for label, value, pair in zip(labels, dense, ids, strict=True)
        ]
        text = "".join(lines).encode()
        file = path / f"{split}.txt"
        file.write_bytes(text)
        digest = hashlib.sha256(text).hexdigest()
        shard = {"file": file.name, "rows": rows, "bytes": len(text), "sha256": digest}
        splits[split] = {"rows": rows, "shards": [shard]}
    columns = [
        {"name": "label", "kind": "label", "width": 1, "features": ["label"]},
        {"name": "dense", "kind": "dense", "width": 1, "features": ["x"]},
        {"name": "ids", "kind": "sparse", "width": 2, "features": ["a", "b"]},
    ]
    document = {
        "format": "fleetps-dataset",
        "version": 1,
        "columns": columns,
        "splits": splits,
        "distinct_ids": 400,
        "source": {},
    }
    (path / "dataset.json").write_text(json.dumps(document))


def spoilt(data: Path) -> tuple[str, str]:
    """What has to be named: the task's rows, and the one that did it."""
    first = (BAD_ROW - 1) // TASK_ROWS * TASK_ROWS + 1
    file = data / "train.txt"
    return (
        f"{file} rows {first}-{first + TASK_ROWS - 1}",
        f"row {BAD_ROW} of {file} holds nan or inf",
    )


def test_the_task_with_a_spoilt_row_is_left_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data_with_a_row_that_spoils(data)
    file = job_file(tmp_path, data, workers=2, task_rows=TASK_ROWS, checkpoint_tasks=4)
    sets = ["data.batch_size=50", "data.shuffle=false", "watch={on_nan: skip_task}"]
    command = [*FLEETPS, "launch", "--config", str(file), *(f"--set={text}" for text in sets)]
    program = Program(command, tmp_path)
    assert program.exit_code(240) == 0, program.everything()
    nobody_left()
    run = tmp_path / "runs" / "job"
    # However many workers have met the spoilt parameters.
    (skipped,) = events(run, "skipped")
    for words in spoilt(data):
        assert words in skipped["text"]
    (generation,) = events(run, "generation")
    assert "the task is skipped; generation 1 begins with checkpoint" in generation["text"]
    assert generation["text"].split("generation 1")[1] in program.out
    result = json.loads((run / "result.json").read_text())
    rows = result["accounting"]
    assert rows["skipped"] == TASK_ROWS
    assert rows["done"] + rows["skipped"] == rows["total"] == ROWS + TEST_ROWS
    assert result["final"]["train_rows"] == ROWS - TASK_ROWS
    assert result["final"]["auc"] > 0.65
    for checkpoint in (run / "checkpoints").glob("0*"):
        with np.load(checkpoint / "dense.npz") as dense:
            assert all(np.isfinite(dense[name]).all() for name in dense.files)


def test_a_spoilt_row_stops_the_job_and_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data_with_a_row_that_spoils(data)
    file = job_file(tmp_path, data, task_rows=TASK_ROWS)
    program = Program([*TRAIN, "--config", str(file)], tmp_path)
    assert program.exit_code(60) == 2, program.everything()
    for words in ("the loss became nan within the first", *spoilt(data)):
        assert words in program.err
    assert "Traceback" not in program.err
    nobody_left()


# Python runs this at the start of every process that finds it.
SLOW_WORKER = """
import os, time
from pathlib import Path

if os.environ.get("FLEETPS_RANK") == "1" and os.environ.get("TRAINING_ROLE") == "TRAINER":
    from fleetps.training.step_times import StepTimes

    ended = StepTimes.batch_ended

    def end_slowly(times):
        if Path({switch!r}).exists():
            time.sleep(0.7)
        ended(times)

    StepTimes.batch_ended = end_slowly
"""


def test_who_is_slow_and_who_is_waited_for(tmp_path: Path, small_data: Path) -> None:
    file = job_file(tmp_path, small_data, workers=2, epochs=1000, task_rows=1000)
    watch = "watch={straggler: {times: 3, seconds: 3}, no_progress: 2}"
    command = [*FLEETPS, "launch", "--config", str(file), "--set", watch]
    switch = tmp_path / "slow"
    switch.touch()
    (tmp_path / "sitecustomize.py").write_text(SLOW_WORKER.format(switch=str(switch)))
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    program = Program([*command, "--set", "evaluate.every_epochs=0"], tmp_path, env)
    run = tmp_path / "runs" / "job"
    program.wait_for_output("loss")
    wait_until(lambda: bool(events(run, "straggler")), 60, "a straggler", program.everything)
    switch.unlink()
    (told,) = events(run, "straggler")
    assert told["who"] == "worker 1"
    assert "load average" in told["text"]
    program.wait_for_output(f"worker 1: {told['text']}", 30)
    wait_until(lambda: bool(events(run, "straggler-over")), 60, "its end", program.everything)

    server = one("fleetps.training.server")
    server.send_signal(signal.SIGSTOP)

    def server_is_named() -> bool:
        told = events(run, "no-progress")
        return bool(told) and "the Paddle process of server 0" in told[-1]["text"]

    wait_until(server_is_named, 60, "the server's name", program.everything)
    stopped = events(run, "no-progress")[-1]["id"]
    server.send_signal(signal.SIGCONT)
    wait_until(
        lambda: any(event["id"] > stopped for event in events(run, "progress")),
        60,
        "progress",
        program.everything,
    )
    assert not events(run, "generation")
    program.send(signal.SIGTERM)
    assert program.exit_code(60) in (75, 143), program.everything()
    nobody_left()


HANGING = """
import ctypes
from fleetps.training import child

def a_call_that_never_ends():
    print("begun", flush=True)
    ctypes.PyDLL(None).sleep(1000)  # holds the interpreter, as Paddle does

child.run(a_call_that_never_ends)
"""


def test_a_process_that_hangs_outside_python_leaves_its_stack(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = Child("hanging", [sys.executable, "-c", HANGING], log=log, cwd=tmp_path)
    try:
        wait_until(lambda: "begun" in log.read_text(), 60, "its begin", log.read_text)
        child.abort(10)
        assert child.wait(10) == -signal.SIGABRT
    finally:
        child.kill()
    assert "in a_call_that_never_ends" in log.read_text()
