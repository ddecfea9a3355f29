"""Tasks into Paddle's memory: the next one is read while the present one trains."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle

from fleet_config.errors import UserError
from fleetps.coordinator.messages import Slice, Task
from fleetps.coordinator.splits import seed_of
from fleetps.data import pipe
from fleetps.data.dataset import Column
from fleetps.training.padding import padding_rows


class DataError(Exception):
    """Rows that were promised are not there; one sentence that names the file."""


class Feed:
    """Makes Paddle datasets of tasks.

    Args:
        feeds: variables to read, in the order of the data set's columns.
        columns: those columns.
        threads: that read and later train.
        directory: for the slices' descriptions and reports; emptied as tasks end.
    """

    def __init__(
        self, feeds: Sequence[Any], columns: Sequence[Column], threads: int, directory: Path
    ) -> None:
        self._feeds = list(feeds)
        self._columns = columns
        self._threads = threads
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def start(self, task: Task, batch_size: int) -> LoadingTask:
        """Begin to read a task in the background."""
        files = [self._describe(task, index) for index in range(len(task.slices))]
        dataset = paddle.distributed.InMemoryDataset()
        dataset.init(
            batch_size=batch_size,
            thread_num=self._threads,
            use_var=self._feeds,
            pipe_command=f"{shlex.quote(sys.executable)} -I {shlex.quote(pipe.__file__)}",
            input_type=0,
        )
        dataset.set_filelist([str(file) for file in files])
        dataset.preload_into_memory(self._threads)
        return LoadingTask(task, dataset, files)

    def _describe(self, task: Task, index: int) -> Path:
        """What Paddle takes for a data file: its pipe command finds a slice described in it."""
        part = task.slices[index]
        file = self._directory / f"task-{task.id}-{index}.json"
        seed = seed_of(part, index, task.shuffle_seed)
        description = {**part.model_dump(), "shuffle_seed": seed, "report": str(_report(file))}
        if part is task.slices[-1]:
            description["append"] = padding_rows(self._columns, task.pad)
        file.write_text(json.dumps(description))
        _report(file).unlink(missing_ok=True)
        return file


class LoadingTask:
    """A task whose rows are being read."""

    def __init__(self, task: Task, dataset: Any, files: list[Path]) -> None:
        self.task = task
        self._dataset = dataset
        self._files = files
        self._reading = True

    def wait(self) -> Any:
        """The dataset, with every row of the task in memory.

        Raises:
            UserError: a file is damaged or shorter than promised.
            DataError: a file can't be read, or rows were lost on the way; another try may help.
        """
        self._wait()
        for file in self._files:
            self._check(file)
        rows = self._dataset.get_memory_data_size()
        if rows != self.task.rows + self.task.pad:
            shards = ", ".join(sorted({part.shard for part in self.task.slices}))
            read = rows - self.task.pad
            raise DataError(f"{shards}: {self.task.rows} rows were promised, {read} were read")
        return self._dataset

    def _wait(self) -> None:
        if self._reading:  # Paddle fails when it is asked twice
            self._dataset.wait_preload_done()
            self._reading = False

    def _check(self, file: Path) -> None:
        try:
            outcome = json.loads(_report(file).read_text())
        except FileNotFoundError:
            raise DataError(
                f"{json.loads(file.read_text())['shard']}: the process that read it was killed"
            ) from None
        if outcome.get("damaged"):
            raise UserError(f"{outcome['error']}; copy the data set again, or convert it again")
        if "error" in outcome:
            raise DataError(outcome["error"])

    def release(self) -> None:
        """Free the memory and the files; what is still being read is waited for."""
        self._wait()
        self._dataset.release_memory()
        for file in self._files:
            file.unlink(missing_ok=True)
            _report(file).unlink(missing_ok=True)


def spoilt_row(slices: Sequence[Slice]) -> str:
    """Where the first row is of which a value is nan or inf, in words; "": there is none.

    Numbers have no letter n. What can't be read is not looked into.
    """
    for part in slices:
        before = part.start
        try:
            for rows, text in pipe.slice_rows(part.shard, part.start, part.rows):
                found = text.find(b"n")
                if found >= 0:
                    row = before + text.count(b"\n", 0, found) + 1
                    return f"row {row} of {part.shard} holds nan or inf"
                before += rows
        except pipe.DamagedFile:
            continue
    return ""


def _report(file: Path) -> Path:
    return file.with_suffix(".report")
