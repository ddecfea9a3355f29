"""The small parts of training that need no cluster: schedules, models' parameters, local tables."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import numpy as np
import paddle
import pytest
import zstandard
from checkpoint_rig import job_of, make

from fleet_config.errors import UserError
from fleet_config.optimizers import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    Schedule,
    StepSchedule,
)
from fleetps import models
from fleetps.checkpoint.store import Checkpoints
from fleetps.coordinator.messages import Slice, Task
from fleetps.training.feed import DataError, LoadingTask, spoilt_row
from fleetps.training.loss_watch import LossWatch
from fleetps.training.schedule import factor
from fleetps.training.snapshot import prune
from fleetps.training.step_hook import Counts, StepHook

TOTAL = 110

SCHEDULES: list[tuple[Schedule, int, float]] = [
    (ConstantSchedule(), 0, 1.0),
    (ConstantSchedule(), TOTAL, 1.0),
    (ConstantSchedule(warmup_steps=10), 0, 0.1),
    (ConstantSchedule(warmup_steps=10), 9, 1.0),
    (LinearSchedule(warmup_steps=10), 10, 1.0),
    (LinearSchedule(warmup_steps=10), 60, 0.5),
    (LinearSchedule(warmup_steps=10, min_factor=0.2), 60, 0.6),
    (LinearSchedule(warmup_steps=10, min_factor=0.2), TOTAL + 50, 0.2),
    (LinearSchedule(total_steps=20), 5, 0.75),
    (CosineSchedule(), 0, 1.0),
    (CosineSchedule(), TOTAL // 2, 0.5),
    (CosineSchedule(), TOTAL // 4, 0.5 * (1 + math.cos(math.pi * (TOTAL // 4) / TOTAL))),
    (CosineSchedule(min_factor=0.1), TOTAL, 0.1),
    (StepSchedule(step_size=30, gamma=0.5), 29, 1.0),
    (StepSchedule(step_size=30, gamma=0.5), 30, 0.5),
    (StepSchedule(step_size=30, gamma=0.5, warmup_steps=5), 65, 0.25),
]


@pytest.mark.parametrize(("schedule", "step", "expected"), SCHEDULES)
def test_schedule(schedule: Schedule, step: int, expected: float) -> None:
    assert factor(schedule, step, TOTAL) == pytest.approx(expected)


def test_a_save_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """The coordinator knows of no newer one if the worker that saves dies now."""
    job = job_of(tmp_path, checkpoint={"keep": 1})
    store = Checkpoints(job.checkpoint_dir)
    for number in (1, 2, 3):
        make(job, number)
        prune(job, store)
    assert [one.manifest.number for one in store.list()] == [3, 2]


def test_every_file_of_models_is_registered() -> None:
    assert models.names() == ["deepfm", "dnn", "wide_deep"]


def test_model_parameters_are_checked() -> None:
    assert models.parse_params("dnn", {"hidden": [8]}).model_dump() == {"hidden": [8]}
    with pytest.raises(UserError, match=r"model\.params\.hiden .* did you mean hidden\?"):
        models.parse_params("dnn", {"hiden": [8]})
    with pytest.raises(UserError, match=r"model\.params\.hidden\.0: .* integer.*, not 'x'"):
        models.parse_params("dnn", {"hidden": ["x"]})
    with pytest.raises(UserError, match=r"model\.params\.hidden\.1: .* greater than 0"):
        models.parse_params("dnn", {"hidden": [64, 0]})
    with pytest.raises(UserError, match=r"no model is called 'deepfn'; did you mean deepfm\?"):
        models.get("deepfn")


def test_a_table_that_the_job_lacks_is_named() -> None:
    inputs = models.Inputs(dense=None, lookup=lambda table: table, dims={"embedding": 4})
    assert inputs.embedding() == "embedding"
    with pytest.raises(UserError, match=r"add tables\.wide"):
        inputs.embedding("wide")


class _Loaded:
    """In place of a data set of Paddle."""

    def wait_preload_done(self) -> None: ...


@pytest.mark.parametrize(
    ("damaged", "kind", "remedy"),
    [(True, UserError, "; copy the data set again, or convert it again"), (False, DataError, "")],
)
def test_only_what_another_try_may_read_is_tried_again(
    tmp_path: Path, damaged: bool, kind: type[Exception], remedy: str
) -> None:
    part = Slice(shard="train-00000.txt.zst", start=0, rows=5)
    task = Task(
        id=1, generation=0, epoch=0, split="train", training=True, slices=(part,), rows=5,
        rows_before=0, shuffle_seed=None,
    )  # fmt: skip
    report = {"error": "train-00000.txt.zst: is wrong", "damaged": damaged}
    (tmp_path / "0.report").write_text(json.dumps(report))
    with pytest.raises(kind) as refused:
        LoadingTask(task, _Loaded(), [tmp_path / "0.json"]).wait()
    assert str(refused.value) == f"train-00000.txt.zst: is wrong{remedy}"


def test_a_row_that_is_no_number_is_found(tmp_path: Path) -> None:
    file = tmp_path / "train.txt.zst"
    rows = [f"1 0 2 0.5 {row}e-3 1 {row}\n" for row in range(40_000)]  # more than a block of text
    rows[31_233] = "1 0 2 0.5 -inf 1 7\n"
    file.write_bytes(zstandard.compress("".join(rows).encode()))
    before, after = (
        Slice(shard=str(file), start=1_000, rows=30_233),
        Slice(shard=str(file), start=31_234, rows=8_000),
    )
    around = Slice(shard=str(file), start=31_000, rows=1_000)
    missing = Slice(shard=str(tmp_path / "nothing.txt"), start=0, rows=5)
    assert spoilt_row((before, missing, after)) == ""
    assert spoilt_row((before, around)) == f"row 31234 of {file} holds nan or inf"


def test_threads_come_to_rest_whenever_their_batches_end() -> None:
    """One is at rest at the first try, the other one only later: nobody is forgotten meanwhile."""
    rate = paddle.static.global_scope().var("rate").get_tensor()
    rate.set(np.zeros(1, "float32"), paddle.CPUPlace())
    loss, label = paddle.base.core.LoDTensor(), paddle.base.core.LoDTensor()
    loss.set(np.ones(1, "float32"), paddle.CPUPlace())
    label.set(np.ones((2, 1), "int64"), paddle.CPUPlace())
    hook = StepHook(lambda _ending: None, LossWatch(None), pytest.fail)
    hook.begin("task 0", lambda _step: 0.1, "rate", padded=False)
    assert not hook.park(2, timeout=0.01)
    threading.Thread(target=hook, args=(loss, label), daemon=True).start()
    assert not hook.park(2, timeout=0.2)
    threading.Thread(target=hook, args=(loss, label), daemon=True).start()
    assert hook.park(2, timeout=30)
    assert hook.counts() == Counts(rows=4, steps=2, loss_sum=2.0)
