"""A coordinator with a clock that only moves when told, and workers that do as they are told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet_config.job import Job
from fleetps.checkpoint.format import (
    JobRecord,
    Manifest,
    World,
    column_records,
    data_record,
    table_records,
)
from fleetps.checkpoint.store import Checkpoints
from fleetps.coordinator.messages import Chore, Evaluation, Flush, JobState, Lease, Task
from fleetps.coordinator.protocol import Coordinator
from fleetps.coordinator.service import JobService
from fleetps.data.dataset import Dataset, load_dataset


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def make_dataset(path: Path, splits: Mapping[str, list[int]] | None = None) -> Dataset:
    """A data set with shards of so many rows; the coordinator never looks into them."""
    path.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "format": "fleetps-dataset",
        "version": 1,
        "columns": [
            {"name": "label", "kind": "label", "width": 1, "features": ["label"]},
            {"name": "ids", "kind": "sparse", "width": 1, "features": ["C1"]},
        ],
        "splits": {},
        "distinct_ids": 1,
        "source": {"best_auc": 0.81},
    }
    for split, sizes in (splits or {"train": [70, 30], "test": [20]}).items():
        shards = [_shard(path / f"{split}-{i:05d}.txt", rows) for i, rows in enumerate(sizes)]
        document["splits"][split] = {"rows": sum(sizes), "shards": shards}
    (path / "dataset.json").write_text(json.dumps(document))
    return load_dataset(path)


def _shard(file: Path, rows: int) -> dict[str, Any]:
    text = b"1 0 1 5\n" * rows
    file.write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    return {"file": file.name, "rows": rows, "bytes": len(text), "sha256": digest}


def make_job(root: Path, **sections: Any) -> Job:
    """A job in `root`; sections are merged over small defaults."""
    settings: dict[str, Any] = {
        "job": {"name": "test-job", "output": str(root / "runs")},
        "cluster": {"servers": 1, "workers": 2, "threads": 1},
        "data": {"path": str(root / "data"), "task_rows": 25},
        "checkpoint": {"every": {"epochs": None}},
    }
    for name, section in sections.items():
        merged = isinstance(section, dict) and name in settings
        settings[name] = {**settings[name], **section} if merged else section
    return Job.model_validate(settings)


def scores(rows: int) -> Evaluation:
    """As many positives as negatives (or one more), all well separated."""
    negatives = rows // 2
    bins = {10: (negatives, 0), 20: (0, rows - negatives)}
    return Evaluation(
        bins=bins,
        log_loss_sum=rows * 0.5,
        prob_sum=rows * 0.6,
        label_sum=rows - negatives,
        rows=rows,
    )


class Rig:
    """The service with its job, data and clock, and shorthands for what members do."""

    def __init__(self, root: Path, **sections: Any) -> None:
        splits = sections.pop("splits", None)
        self.root = root
        self.dataset = make_dataset(root / "data", splits)
        self.job = make_job(root, **sections)
        self.clock = Clock()
        self.service = self.start()

    def start(self, **how: bool) -> JobService:
        return JobService(self.job, self.dataset, clock=self.clock, wall=self.clock, **how)

    def restart(self, **how: bool) -> None:
        self.service.close()
        self.service = self.start(**how)

    def register(self, role: Any, instance: str, rank: int | None = None) -> int:
        address = f"10.0.0.{len(instance)}:{instance}" if role == "server" else "10.0.0.9"
        return self.service.register(role, instance, address, rank, self.job.digest()).rank

    def assemble(self) -> None:
        """All servers s0.. and workers w0.. of the job come, serve and run."""
        for rank in range(self.job.cluster.servers):
            self.register("server", f"s{rank}", rank)
            self.service.heartbeat(f"s{rank}", "serving")
        for rank in range(self.job.cluster.workers):
            self.register("worker", f"w{rank}", rank)
            self.service.heartbeat(f"w{rank}", "running")
        self.service.tick()  # where a checkpoint is still to be chosen

    def beat(self, *instances: str) -> JobState:
        """Heartbeats without a change of state, then a look at the deadlines."""
        for instance in instances:
            self.service.rendezvous(instance)
        self.service.tick()
        return self.state()

    def pass_time(self, seconds: float, *instances: str) -> JobState:
        """Time goes by while these members go on sending heartbeats."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.advance(min(1.0, end - self.clock.now))
            self.beat(*instances)
        return self.state()

    def state(self) -> JobState:
        status = self.service.status()
        return JobState(
            job=status.job,
            generation=status.generation,
            reason=status.reason,
            exit_code=status.exit_code,
        )

    def task(self, instance: str) -> Task:
        lease = self.service.lease(instance)
        assert lease.kind == "task", lease
        return lease.task

    def finish_task(self, instance: str, task: Task) -> None:
        assert finish(self.service, instance, task)

    def begin_again(self, *names: str) -> None:
        """These agents have ended their processes and come for the new generation."""
        for name in names:
            role = "server" if name.startswith("s") else "worker"
            self.register(role, name)
            self.service.heartbeat(name, "serving" if role == "server" else "running")
        self.service.tick()

    def texts(self, kind: str) -> list[str]:
        return [event.text for event in self.service.events().events if event.kind == kind]

    def step(self, instance: str) -> Lease:
        """What a worker does with one answer, checkpoints included."""
        lease = step(self.service, instance)
        if isinstance(lease, Chore) and lease.action == "save":
            self.service.arrive(instance, lease.name, save(self.job, self.dataset, lease))
        return lease

    def work(self, *instances: str) -> list[Task]:
        """These workers, in turns, until all are told to finish; the tasks in the order done."""
        done: list[Task] = []
        waiting = list(instances)
        for _ in range(10_000):
            for instance in list(waiting):
                lease = self.step(instance)
                if lease.kind == "task":
                    done.append(lease.task)
                elif lease.kind == "finish":
                    waiting.remove(instance)
            if not waiting:
                return done
        raise AssertionError("the job does not come to an end")

    def kinds(self) -> list[str]:
        return [event.kind for event in self.service.events().events]

    def check_accounting(self) -> None:
        rows = self.service.status().accounting
        assert rows.leased == rows.done + rows.held + rows.returned
        states = rows.done + rows.held + rows.waiting + rows.quarantined + rows.skipped
        assert rows.total == states


def save(job: Job, dataset: Dataset, chore: Chore) -> str:
    """A checkpoint with nothing in it but its progress."""
    sizes = dict.fromkeys(job.tables, 0)
    ids = {name: index for index, name in enumerate(job.tables)}
    manifest = Manifest(
        number=chore.number,
        time=f"2026-01-01T00:00:{chore.number:02}Z",
        generation=0,
        job=JobRecord(name=job.job.name, digest=job.digest(), agreement=job.agreement()),
        world=World(servers=job.cluster.servers, ranks=(0,)),
        data=data_record(dataset),
        columns=column_records(dataset.columns),
        tables=table_records(job, ids, sizes, sizes),
        vocabulary=0,
        dense={},
        progress=chore.progress,
        files={},
        versions={},
    )
    partial = Path(chore.directory)
    return Checkpoints(partial.parent).commit(partial, manifest).name


def finish(coordinator: Coordinator, instance: str, task: Task) -> bool:
    evaluation = None if task.training else scores(task.rows)
    answer = coordinator.done(instance, task.id, task.rows, 1, task.rows * 0.7, evaluation)
    return answer.accepted


def step(coordinator: Coordinator, instance: str) -> Lease:
    """What a worker does with one answer."""
    lease = coordinator.lease(instance)
    if lease.kind == "task":
        assert finish(coordinator, instance, lease.task)
    elif isinstance(lease, Flush) or (isinstance(lease, Chore) and lease.action == "shrink"):
        coordinator.arrive(instance, lease.name)
    return lease


def work(coordinator: Coordinator, *instances: str) -> list[Task]:
    """These workers, in turns, until all are told to finish; the tasks in the order done."""
    done: list[Task] = []
    waiting = list(instances)
    for _ in range(1_000_000):
        if not waiting:
            return done
        for instance in list(waiting):
            lease = step(coordinator, instance)
            if lease.kind == "task":
                done.append(lease.task)
            elif lease.kind == "finish":
                waiting.remove(instance)
    raise AssertionError("the job does not come to an end")
