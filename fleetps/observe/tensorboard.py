"""Curves for TensorBoard: event files that the coordinator writes into the run directory."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fleetps.coordinator.reports import EpochResult, Status, WorkerStatus

_log = logging.getLogger(__name__)

_SECONDS = 5.0
# More dense weights than anybody looks at one by one.
_MOST_BYTES = 1 << 28
_BINS = 100
# What Adam and AdamW keep of the weight `name`: the decaying mean of its gradients.
_MEAN_GRADIENT = re.compile(r"update\.(?P<name>.+)\.new_moment1_0")


class Curves:
    """Everything is drawn over the training rows that were done, in all epochs together.

    After the job has gone back to a checkpoint, or its coordinator was started again, a new event
    file says from which row on what was drawn before no longer holds. What can't be written is not
    the job: that is logged once, and then nothing is written any more.

    checkpoints: the directory that they are in.
    """

    def __init__(
        self, directory: Path, checkpoints: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = directory
        self._checkpoints = checkpoints
        self._clock = clock
        self._writer: Any = None
        self._due = 0.0
        self._generation = -1
        self._rows = 0  # at which the last values stand
        self._epochs = 0  # whose results are drawn
        self._checkpoint = 0
        self._weights: Mapping[str, Any] = {}  # in that checkpoint
        self._broken = False

    def due(self) -> bool:
        """Whether it is time for more values."""
        return not self._broken and self._clock() >= self._due

    def add(self, status: Status) -> None:
        if self._broken or status.job == "waiting":
            return
        self._due = self._clock() + _SECONDS
        try:
            self._add(status)
        except OSError as error:
            self._broken = True
            _log.warning("no more curves for TensorBoard in %s: %s", self._directory, error)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _add(self, status: Status) -> None:
        if status.generation != self._generation:
            self._begin(status)
        self._rows = max(self._rows, status.rows_done)
        for number, result in enumerate(status.history[self._epochs :], self._epochs + 1):
            rows = sum(epoch.train_rows for epoch in status.history[:number])
            self._write(_of_epoch(result), rows)
        self._epochs = len(status.history)
        if status.job == "running" and status.phase == "train":
            self._write(_of_training(status), self._rows)
        if status.checkpoint.number > self._checkpoint:
            self._checkpoint = status.checkpoint.number
            self._look_into(self._checkpoints / status.checkpoint.name, status.checkpoint.rows)
        self._writer.flush()

    def _begin(self, status: Status) -> None:
        """A file for this generation; what stands at later rows is not true any more."""
        # It takes a tenth of a second, and nobody needs to wait for that when a job begins.
        from tensorboardX import SummaryWriter  # noqa: PLC0415

        self.close()
        if self._writer is None and self._directory.exists():  # by an earlier coordinator
            self._epochs, self._checkpoint = len(status.history), status.checkpoint.number
        self._epochs = min(self._epochs, len(status.history))
        self._generation, self._rows = status.generation, status.rows_done
        self._weights = {}
        # Its own names differ by seconds only, and then a file would be written over.
        self._writer = SummaryWriter(
            str(self._directory),
            purge_step=status.rows_done + 1,
            filename_suffix=f".{time.time_ns()}",
        )

    def _write(self, values: Iterator[tuple[str, float | None]], rows: int) -> None:
        for tag, value in values:
            if value is not None:
                self._writer.add_scalar(tag, value, rows)

    def _look_into(self, checkpoint: Path, rows: int) -> None:
        """Histograms of what a checkpoint holds exactly. No worker makes a step for them.

        The dense weights, their change since the checkpoint before, and the mean gradients of the
        first worker that has left its optimizer's state.
        """
        before, self._weights = self._weights, _arrays(checkpoint / "dense.npz")
        changes = {
            name: now - before[name] for name, now in self._weights.items() if name in before
        }
        states = sorted(checkpoint.glob("optimizer-*.npz"))[:1]
        gradients = {
            found["name"]: values
            for state in states
            for name, values in _arrays(state).items()
            if (found := _MEAN_GRADIENT.fullmatch(name))
        }
        for kind, arrays in (
            ("weights", self._weights), ("changes", changes), ("gradients", gradients),
        ):  # fmt: skip
            for name, values in arrays.items():
                self._writer.add_histogram(f"{kind}/{name}", values, rows, bins=_BINS)


def _arrays(file: Path) -> dict[str, Any]:
    """Of an .npz file; none, if it is too large, or was removed meanwhile."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            return {}
        with np.load(file) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        return {}


def _of_epoch(result: EpochResult) -> Iterator[tuple[str, float | None]]:
    yield "epoch/train_loss", result.train_loss
    yield "evaluation/auc", result.auc
    yield "evaluation/log_loss", result.log_loss
    yield "evaluation/calibration", result.calibration


def _of_training(status: Status) -> Iterator[tuple[str, float | None]]:
    yield "train/loss", status.loss
    yield "train/learning_rate", _mean(status.workers, "learning_rate")
    yield "train/gradient_norm", _mean(status.workers, "gradient_norm")
    yield "speed/rows_per_second", status.rows_per_second
    for worker in status.workers:
        yield f"speed/worker-{worker.rank}", worker.rows_per_second
    for table in sorted({table for server in status.servers for table in server.rows}):
        yield f"rows/{table}", sum(server.rows.get(table, 0) for server in status.servers)


def _mean(workers: tuple[WorkerStatus, ...], name: str) -> float | None:
    """Over the workers that have said it of what they do now."""
    found = [
        worker.extra[name] for worker in workers if name in worker.extra and worker.rows_per_second
    ]
    return sum(found) / len(found) if found else None
