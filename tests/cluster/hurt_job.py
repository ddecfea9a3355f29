"""A job that is hurt while it trains, one fault after the other, and what has become of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from running_job import FLEETPS, Program, events, nobody_left, wait_until

from fleet_config.errors import EXIT_OK
from fleetps.coordinator.client import CoordinatorClient

TRAIN_ROWS, TEST_ROWS = 24_000, 30_000  # with fewer the AUC says less of the model
TASK_ROWS, CHECKPOINT_TASKS = 3_000, 4
WORKERS = 2
# Longer than anything should take, recoveries included.
SECONDS = 240.0
TOKEN = "of-this-test"  # noqa: S105
# So that each task's threads need memory, and one that can't get any is sure to notice.
_NO_SPARE_STACKS = "glibc.pthread.stack_cache_size=0"

_JOB = """\
job: {{name: job, epochs: {epochs}, output: {output}}}
cluster:
  servers: {servers}
  workers: 2
  heartbeat: {heartbeat}
  restarts: {restarts}
  generations: 20
  deadlines: {{rendezvous: 60, stop: 8, step: {step}, first_step: 60}}
data: {{path: {data}, batch_size: 128, task_rows: {task_rows}}}
checkpoint: {{every: {{epochs: null, tasks: {tasks}}}}}
tables: {{embedding: {{dim: 3, rule: {{name: adagrad, learning_rate: 0.01}}}}}}
optimizer: {{name: adam, learning_rate: 0.002, schedule: {{name: linear}}}}
mode: {mode}
model: {{name: deepfm, params: {{hidden: [8]}}}}
evaluate: {{every_epochs: 4}}
observe: {{progress_seconds: 0.5}}
"""


def write_job(
    directory: Path,
    data: Path,
    *,
    epochs: int,
    mode: str = "async",
    servers: int = 2,
    checkpoints: bool = True,
    task_rows: int | str = TASK_ROWS,
    restarts: int = 3,
    heartbeat: float = 0.5,
    step: int = 6,
    output: Path | None = None,
) -> Path:
    """Its learning rate ends at 0, so that a job of any history ends near the same model."""
    file = directory / "job.yaml"
    text = _JOB.format(
        data=data,
        epochs=epochs,
        mode=mode,
        servers=servers,
        restarts=restarts,
        heartbeat=heartbeat,
        step=step,
        task_rows=task_rows,
        tasks=CHECKPOINT_TASKS if checkpoints else "null",
        output=output or directory / "runs",
    )
    file.write_text(text)
    return file


class Watched:
    """A job of which `program` must live, and its run directory."""

    def __init__(self, program: Program, run: Path) -> None:
        self.program = program
        self.run = run

    def until(self, true: Callable[[], bool], what: str) -> None:
        def seen() -> bool:
            assert self.program.popen.poll() is None, self.program.everything()
            return true()

        wait_until(seen, SECONDS, what, self.program.everything)

    def wait_for(self, kind: str, count: int = 1) -> None:
        """Until so many things of this kind have happened."""
        self.until(lambda: len(events(self.run, kind)) >= count, f"{count} x {kind}")

    def wait_for_more(self, kind: str, more: int = 1) -> None:
        """Until so many things of this kind have happened from now on."""
        self.wait_for(kind, len(events(self.run, kind)) + more)

    def wait_for_save(self) -> None:
        """Until a checkpoint is being written."""
        self.until(lambda: any(self.run.glob("checkpoints/.partial-*/tables")), "a save")


class Hurt(Watched):
    """A launched job."""

    checkpoints = True  # to be taken between two faults

    def __init__(
        self, directory: Path, file: Path, label: str = "program", output: Path | None = None
    ) -> None:
        command = [*FLEETPS, "launch", "--config", str(file)]
        env = {"FLEETPS_TOKEN": TOKEN, "GLIBC_TUNABLES": _NO_SPARE_STACKS}
        program = Program(command, directory, env, label)
        super().__init__(program, (output or directory / "runs") / "job")

    @cached_property
    def _client(self) -> CoordinatorClient:
        self.program.wait_for_output("coordinator on")
        address = (self.run / "coordinator.address").read_text().strip()
        return CoordinatorClient(address, TOKEN)

    def until_it_trains(self, workers: int = WORKERS) -> None:
        """Everybody is there, and each of these workers has trained some rows since now."""
        before = {worker.rank: worker.rows for worker in self._client.status().workers}

        def trains() -> bool:
            status = self._client.status()
            serve = [server.state == "serving" for server in status.servers]
            train = [
                worker.state == "running" and worker.rows > before.get(worker.rank, 0)
                for worker in status.workers
            ]
            return sum(train) == workers and all(serve)

        self.until(trains, "all workers to train")

    def suffer(self, fault: Fault) -> None:
        """Until it is noticed, and all is as before."""
        before = len(events(self.run, fault.event))
        fault.hurt(self)
        self.until(lambda: self._is_told(fault, before), f"{fault.event}: {fault.says}")
        if fault.heal is not None:
            fault.heal()
        self.until_it_trains(fault.workers)
        if self.checkpoints:
            self.wait_for_more("checkpoint")

    def _is_told(self, fault: Fault, before: int) -> bool:
        since = events(self.run, fault.event)[before:]
        return any(re.search(fault.says, f"{one['who']}: {one['text']}") for one in since)

    def ends_well(self, epochs: int) -> float:
        """Exit code 0, and the rows add up; the AUC."""
        assert self.program.exit_code(SECONDS) == EXIT_OK, self.program.everything()
        nobody_left()
        return rows_add_up(self.run, epochs)


@dataclass(frozen=True)
class Fault:
    """`event` is the kind of what tells of it, and `says` matches who and what."""

    name: str
    hurt: Callable[[Watched], None]
    event: str
    says: str
    heal: Callable[[], None] | None = None
    workers: int = WORKERS  # that are left


def rows_add_up(run: Path, epochs: int) -> float:
    """Every row was trained in each epoch, and none more often than what happened explains."""
    result = json.loads((run / "result.json").read_text())
    assert [epoch["train_rows"] for epoch in result["history"]] == [TRAIN_ROWS] * epochs
    rows = result["accounting"]
    assert rows["total"] == rows["done"]
    assert rows["leased"] == rows["done"] + rows["returned"]
    assert rows["held"] == rows["waiting"] == rows["quarantined"] == 0
    assert rows["repeated"] == rows["returned"] <= _most_repeated(run), events_text(run)
    assert all(epoch["evaluated_rows"] in (0, TEST_ROWS) for epoch in result["history"])
    return float(result["final"]["auc"])


def _most_repeated(run: Path) -> int:
    """A worker holds two tasks at most; a generation takes back all, and some that were done."""
    held = 2 * TASK_ROWS
    most = held * len(events(run, "worker-lost")) + held * len(events(run, "lease-expired"))
    for generation in events(run, "generation"):
        (again,) = re.findall(r"; (\d+) rows are trained again", generation["text"])
        if "from the beginning" not in generation["text"]:
            assert int(again) <= (CHECKPOINT_TASKS + 2 * WORKERS) * TASK_ROWS, generation
        most += int(again) + held * WORKERS + TEST_ROWS
    return most


def events_text(run: Path) -> str:
    """For the message of a test that fails."""
    return (run / "events.jsonl").read_text()
