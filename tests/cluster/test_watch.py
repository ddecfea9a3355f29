"""What is watched: losses that are no numbers, slow workers, jobs that stand still, hung ones."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
from running_job import (
    FLEETPS,
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


def test_the_task_with_a_spoilt_row_is_left_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data_with_a_row_that_spoils(data)
    file = job_file(tmp_path, data, workers=2, epochs=2, task_rows=TASK_ROWS, checkpoint_tasks=4)
    command = [*FLEETPS, "launch", "--config", str(file), "--set", "data.batch_size=50"]
    program = Program([*command, "--set", "watch={on_nan: skip_task}"], tmp_path)
    assert program.exit_code(120) == 0, program.everything()
    nobody_left()
    run = tmp_path / "runs" / "job"
    result = json.loads((run / "result.json").read_text())
    first = (BAD_ROW - 1) // TASK_ROWS * TASK_ROWS + 1
    where = f"{data}/train.txt rows {first}-{first + TASK_ROWS - 1}"
    row = f"row {BAD_ROW} of {data}/train.txt holds nan or inf"
    # Once in each epoch, and nothing else, however many workers have met the spoilt parameters.
    skipped = events(run, "skipped")
    assert [where in event["text"] for event in skipped] == [True, True], skipped
    assert all(row in event["text"] for event in skipped)
    assert len(events(run, "generation")) == 2
    rows = result["accounting"]
    assert rows["skipped"] == 2 * TASK_ROWS
    assert rows["done"] + rows["skipped"] == rows["total"] == 2 * (ROWS + TEST_ROWS)
    assert [epoch["train_rows"] for epoch in result["history"]] == [ROWS - TASK_ROWS] * 2
    assert result["final"]["auc"] > 0.75
    for checkpoint in (run / "checkpoints").glob("0*"):
        with np.load(checkpoint / "dense.npz") as dense:
            assert all(np.isfinite(dense[name]).all() for name in dense.files)

    again = Program([*command, "--new"], tmp_path, label="again")
    assert again.exit_code(120) == 2, again.everything()
    assert "the loss became nan within the first" in again.err
    assert where in again.err
    assert "Traceback" not in again.err
    nobody_left()


@contextmanager
def slowed(process: psutil.Process) -> Iterator[None]:
    """It gets to run for a twentieth of the time."""
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            process.send_signal(signal.SIGSTOP)
            over.wait(0.38)
            process.send_signal(signal.SIGCONT)
            over.wait(0.02)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        process.send_signal(signal.SIGCONT)


def test_who_is_slow_and_who_is_waited_for(tmp_path: Path, small_data: Path) -> None:
    file = job_file(tmp_path, small_data, workers=2, epochs=1000, task_rows=1000)
    watch = "watch={straggler: {times: 4, seconds: 2}, no_progress: 2}"
    command = [*FLEETPS, "launch", "--config", str(file), "--set", watch]
    program = Program([*command, "--set", "evaluate.every_epochs=0"], tmp_path)
    run = tmp_path / "runs" / "job"
    program.wait_for_output("loss")
    worker = one("fleetps.training.worker", env="PADDLE_TRAINER_ID=1")
    with slowed(worker):
        wait_until(lambda: bool(events(run, "straggler")), 60, "a straggler", program.everything)
    (told,) = events(run, "straggler")
    assert told["who"] == "worker 1"
    assert "load average" in told["text"]
    assert f"worker 1: {told['text']}" in program.out
    wait_until(lambda: bool(events(run, "straggler-over")), 60, "its end", program.everything)

    server = one("fleetps.training.server")
    server.send_signal(signal.SIGSTOP)
    wait_until(
        lambda: any("server 0" in event["text"] for event in events(run, "no-progress")),
        60,
        "the server's name",
        program.everything,
    )
    server.send_signal(signal.SIGCONT)
    wait_until(lambda: bool(events(run, "progress")), 60, "progress", program.everything)
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
