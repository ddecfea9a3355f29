"""A worker that leaves what its parameters are, and can train a net of known gradients.

It runs the product's own loop against the coordinator's logic in-process. It leaves dense values as
`<moment>.npz` and the servers' tables as saved by Paddle in `<moment>/`, where moment is start,
trained-0, evaluated-0 (after the first epoch's training and evaluation), trained-1 ... or end, with
AFTER_TASKS also task-0, task-1 ... (after each training task), and its own dense values before it
asked the servers as `worker-<moment>.npz`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from probe_models import PULLED

from fleet_config.job import Job
from fleetps import paddle_compat
from fleetps.coordinator.messages import Task
from fleetps.coordinator.service import JobService
from fleetps.data.dataset import Dataset
from fleetps.training import build, child, sparse, worker
from fleetps.training.engines import Engine, LocalEngine, ServerEngine


class ProbeEngine(ServerEngine):
    """Leaves what the servers hold at every moment that a test may ask about."""

    _flushes = 0
    _tasks = 0

    def build(
        self, job: Job, dataset: Dataset, on_batch: build.Hook, on_evaluated: build.Hook
    ) -> build.Programs:
        def step_by_step(loss: Any, label: Any) -> None:
            on_batch(loss, label)
            paddle_compat.flush()  # else the client merges pushes that wait at the same moment

        hook = step_by_step if os.environ.get("STEP_BY_STEP") else on_batch
        self._programs = super().build(job, dataset, hook, on_evaluated)
        self._job = job
        if os.environ.get("LOAD"):  # tables as a checkpoint has them, before anything else
            paddle_compat.runtime()._worker.load_model(os.environ["LOAD"], 0)
        self._pulls = {table: _record(self._programs, name) for table, name in PULLED.items()}
        self._leave("start")
        self._written = _bytes_written()
        return self._programs

    def task_done(self) -> None:
        super().task_done()
        if os.environ.get("AFTER_TASKS"):
            super().flush()
            self._leave(f"task-{self._tasks}")
            self._tasks += 1

    def flush(self) -> None:
        """Called when an epoch is trained, and at the end."""
        super().flush()
        if self._flushes == 0:
            Path("sent").write_text(str(_bytes_written() - self._written))
        self._leave(f"trained-{self._flushes}")
        self._flushes += 1

    def close(self) -> None:
        self._leave("end")
        for table, pulls in self._pulls.items():
            np.savez(f"pulled-{table}.npz", *pulls)
        shrinks = int(os.environ.get("SHRINKS", "0"))
        if shrinks:
            save_tables("delta-before", mode=1)
        for count in range(shrinks):
            sparse.shrink(self._job, count)
            self._leave(f"shrunk-{count}")
        save_tables("delta", mode=1)
        super().close()

    def evaluated(self, epoch: int) -> None:
        self._leave(f"evaluated-{epoch}")

    def _leave(self, moment: str) -> None:
        self._save_dense(f"worker-{moment}")  # what it has before it asks the servers
        self.refresh()
        self._save_dense(moment)
        save_tables(moment)

    def _save_dense(self, moment: str) -> None:
        scope = paddle.static.global_scope()
        values = {n: np.array(scope.find_var(n).get_tensor()) for n in self._programs.dense}
        np.savez(f"{moment}.npz", **values)


def save_tables(name: str, mode: int = 0) -> None:
    """All tables as Paddle saves them, in a directory of that name."""
    paddle_compat.runtime()._worker.save_all_model(str(Path(name).absolute()), mode)


def _bytes_written() -> int:
    """By this process, to files and sockets."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["wchar"])


def _record(programs: build.Programs, name: str) -> list[np.ndarray]:
    """Fills with what a variable is in each training batch."""
    values: list[np.ndarray] = []
    for program in programs.train.values():
        with paddle.static.program_guard(program):
            rows = program.global_block().var(name)
            paddle_compat.call_after_batch(
                lambda rows, _: values.append(np.array(rows)), rows, rows
            )
    return values


class LocalProbe(LocalEngine):
    """Leaves the tables and dense values of a process without servers as end.npz."""

    def build(
        self, job: Job, dataset: Dataset, on_batch: build.Hook, on_evaluated: build.Hook
    ) -> build.Programs:
        programs = super().build(job, dataset, on_batch, on_evaluated)
        self._names = [*job.tables, *programs.dense]
        return programs

    def close(self) -> None:
        scope = paddle.static.global_scope()
        values = {name: np.array(scope.find_var(name).get_tensor()) for name in self._names}
        np.savez("end.npz", **values)


class ProbeWorker(worker.Worker):
    def _evaluate(self, task: Task, data: Any) -> None:
        super()._evaluate(task, data)
        if isinstance(self._engine, ProbeEngine):
            self._engine.evaluated(task.epoch)


def probe() -> None:
    _run(lambda service: ProbeEngine(service, "probe", 0))


def local_probe() -> None:
    _run(lambda _: LocalProbe())


def _run(engine: Callable[[JobService], Engine]) -> None:
    job, dataset = child.load(0)
    service = JobService(job, dataset, local=True)
    service.register("worker", "probe", "localhost", 0, job.digest())
    ProbeWorker(job, dataset, service, "probe", engine(service)).run()
    Path("status.json").write_text(service.status().model_dump_json())
