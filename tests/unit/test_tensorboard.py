"""The curves' event files, read back with nothing but their format (TFRecord around protobuf)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from coordinator_rig import Clock
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import HistogramProto

from fleetps.coordinator.reports import (
    Accounting,
    CheckpointStatus,
    EpochResult,
    ServerStatus,
    Status,
    WorkerStatus,
)
from fleetps.observe.tensorboard import Curves


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> int:
    crc = _crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events(directory: Path) -> Iterator[Event]:
    """Of all files, in the order in which TensorBoard reads them."""
    for file in sorted(directory.iterdir()):
        data = file.read_bytes()
        while data:
            (size,), (crc,) = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
            assert crc == _masked(data[:8])
            body, data = data[12 : 12 + size], data[12 + size :]
            assert struct.unpack("<I", data[:4]) == (_masked(body),)
            data = data[4:]
            yield Event.FromString(body)


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events(directory):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def status(rows: int, **more: object) -> Status:
    worker = {
        "address": "h", "state": "running", "rows": rows, "loss": 0.5, "task": 1,
        "heartbeat_age": 0.1,
    }  # fmt: skip
    defaults = {
        "name": "job", "job": "running", "generation": 0, "phase": "train", "mode": "async",
        "epoch": 0, "epochs": 2, "rows_total": 2000, "rows_done": rows, "phase_rows_total": 1000,
        "phase_rows_done": rows, "rows_per_second": 300.0, "loss": 0.5, "eta": None, "seconds": 9.0,
        "workers": (
            WorkerStatus(rank=0, rows_per_second=100.0, extra={"learning_rate": 0.25}, **worker),
            WorkerStatus(rank=1, rows_per_second=200.0, extra={"learning_rate": 0.75}, **worker),
            WorkerStatus(rank=2, rows_per_second=0.0, extra={"learning_rate": 9.0}, **worker),
        ),
        "servers": tuple(
            ServerStatus(rank=rank, address="h:1", state="serving", heartbeat_age=0.1,
                         rows={"embedding": 40 + rank})
            for rank in range(2)
        ),
        "max_lead": None, "workers_lost": 0, "losses": (), "missing": (), "history": (),
        "loss_curve": (),
        "accounting": Accounting(total=0, leased=0, done=0, held=0, returned=0, repeated=0,
                                 waiting=0, quarantined=0),
        "failure": None, "reason": "", "exit_code": None, "best_auc": None, "versions": {},
    }  # fmt: skip
    return Status(**{**defaults, **more})


def epoch(number: int) -> EpochResult:
    return EpochResult(
        epoch=number, train_rows=1000, train_loss=0.4, seconds=1.0, evaluated_rows=10,
        auc=0.75 + number / 8, log_loss=0.5, calibration=None,
    )  # fmt: skip


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def curves(tmp_path: Path, clock: Clock) -> Curves:
    return Curves(tmp_path / "tensorboard", tmp_path / "checkpoints", clock)


def test_what_is_drawn_over_the_rows(tmp_path: Path, curves: Curves, clock: Clock) -> None:
    assert curves.due()
    curves.add(status(0, job="waiting"))
    curves.add(status(100))
    assert not curves.due()
    clock.advance(5)
    assert curves.due()
    curves.add(status(1000, phase="evaluate", loss=None))
    curves.add(status(1200, history=(epoch(0),), loss=math.nan))
    curves.close()
    found = scalars(tmp_path / "tensorboard")
    assert found["train/loss"][0] == (100, 0.5)
    assert math.isnan(found["train/loss"][1][1])
    assert found["train/learning_rate"] == [(100, 0.5), (1200, 0.5)]  # of those that are at work
    assert found["speed/rows_per_second"] == [(100, 300), (1200, 300)]
    assert found["speed/worker-1"] == [(100, 200), (1200, 200)]
    assert found["rows/embedding"] == [(100, 81), (1200, 81)]
    assert found["evaluation/auc"] == [(1000, 0.75)]
    assert found["epoch/train_loss"] == [(1000, pytest.approx(0.4))]
    assert "evaluation/calibration" not in found
    assert "train/gradient_norm" not in found


def test_after_going_back_what_was_drawn_is_taken_back(tmp_path: Path, curves: Curves) -> None:
    """By a session that starts at a row: TensorBoard drops what earlier files have beyond it."""
    curves.add(status(1500, history=(epoch(0),)))
    curves.add(status(600, generation=1, phase="rendezvous"))
    curves.add(status(700, generation=1))
    curves.add(status(1100, generation=1, history=(epoch(0),)))
    curves.close()
    found = list(events(tmp_path / "tensorboard"))
    starts = [e.step for e in found if e.session_log.status == SessionLog.START]
    assert starts == [1501, 601]
    assert [step for step, _ in scalars(tmp_path / "tensorboard")["train/loss"]] == [
        1500,
        700,
        1100,
    ]
    assert len(scalars(tmp_path / "tensorboard")["evaluation/auc"]) == 2


def test_a_new_coordinator_goes_on_and_draws_nothing_twice(
    tmp_path: Path, curves: Curves, clock: Clock
) -> None:
    curves.add(status(1500, history=(epoch(0),)))
    curves.close()
    again = Curves(tmp_path / "tensorboard", tmp_path / "checkpoints", clock)
    again.add(status(1500, history=(epoch(0),)))
    again.add(status(2000, history=(epoch(0), epoch(1)), job="done"))
    again.close()
    found = scalars(tmp_path / "tensorboard")
    assert found["evaluation/auc"] == [(1000, 0.75), (2000, 0.875)]


def histograms(directory: Path) -> dict[tuple[int, str], HistogramProto]:
    """By step and tag."""
    return {
        (event.step, value.tag): value.histo
        for event in events(directory)
        for value in event.summary.value
        if value.HasField("histo")
    }


def test_what_checkpoints_hold_is_drawn_as_histograms(tmp_path: Path, curves: Curves) -> None:
    weights = np.linspace(-1, 3, 1001, dtype="float32")
    bias = np.zeros(1, "float32")
    moments = {
        "update.mlp.0.w.new_moment1_0": weights / 8,
        "update.mlp.0.w.new_moment2_0": weights,
        "update.mlp.0.w.new_beta1_pow_acc_0": bias,
    }
    for number, factor, ranks in ((7, 1, (2, 3)), (8, 1.5, ())):
        directory = tmp_path / "checkpoints" / f"{number}-then"
        directory.mkdir(parents=True)
        np.savez(directory / "dense.npz", **{"mlp.0.w": weights * factor, "out.b": bias})
        for rank in ranks:
            state = {name: values * (rank == 2) for name, values in moments.items()}
            np.savez(directory / f"optimizer-{rank}.npz", **state)
    for rows, number, name in ((900, 7, "7-then"), (1000, 8, "8-then"), (1100, 9, "gone")):
        saved = CheckpointStatus(number=number, name=name, rows=rows - 100)
        curves.add(status(rows, checkpoint=saved))
    curves.close()
    drawn = histograms(tmp_path / "tensorboard")
    assert list(drawn) == [
        (800, "weights/mlp.0.w"), (800, "weights/out.b"), (800, "gradients/mlp.0.w"),
        (900, "weights/mlp.0.w"), (900, "weights/out.b"),
        (900, "changes/mlp.0.w"), (900, "changes/out.b"),
    ]  # fmt: skip
    histogram = drawn[800, "weights/mlp.0.w"]
    assert (histogram.min, histogram.max, histogram.num) == (-1, 3, 1001)
    assert histogram.sum == pytest.approx(1001.0)
    below = [
        n for limit, n in zip(histogram.bucket_limit, histogram.bucket, strict=True) if limit <= 0
    ]
    assert sum(below) == pytest.approx(np.count_nonzero(weights < 0), abs=2)
    gradients, changes = drawn[800, "gradients/mlp.0.w"], drawn[900, "changes/mlp.0.w"]
    assert (gradients.min, gradients.max) == (-1 / 8, 3 / 8)
    assert (changes.min, changes.max) == (-0.5, 1.5)


def test_there_is_no_change_to_what_was_given_up(tmp_path: Path, curves: Curves) -> None:
    for number in (7, 8):
        directory = tmp_path / "checkpoints" / f"{number}-then"
        directory.mkdir(parents=True)
        np.savez(directory / "dense.npz", **{"out.b": np.full(3, float(number), "float32")})
        saved = CheckpointStatus(number=number, name=directory.name, rows=800)
        curves.add(status(900, generation=number, checkpoint=saved))
    curves.close()
    tags = {tag for _, tag in histograms(tmp_path / "tensorboard")}
    assert tags == {"weights/out.b"}


def test_a_directory_that_cannot_be_written_is_said_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    curves = Curves(tmp_path / "file" / "tensorboard", tmp_path, clock)
    curves.add(status(100))
    clock.advance(10)
    assert not curves.due()
    curves.add(status(200))
    curves.close()
    assert [record.getMessage()[:32] for record in caplog.records] == [
        "no more curves for TensorBoard i"
    ]
