"""Workers leave and come while a job trains, and a job is told to end: no row is trained twice."""

from __future__ import annotations

import gzip
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from running_job import (
    FLEETPS,
    TRAIN,
    Program,
    events,
    nobody_left,
    one,
    wait_until,
)

from fleet_config.errors import EXIT_OK, EXIT_STOPPED
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.reports import Status
from fleetps.data import pipe
from fleetps.data.dataset import Column, load_dataset
from fleetps.data.synthetic import SyntheticSpec, make_synthetic

pytestmark = pytest.mark.cluster

ROWS, TEST_ROWS = 100_000, 60_000  # with fewer the AUC says less of the model
TOKEN = "of-this-test"  # noqa: S105
GRACE = 10.0  # seconds, of a container or a machine that is taken away

JOB = """\
job: {{name: job, epochs: 1, output: {output}}}
cluster:
  workers: 2
  heartbeat: 0.5
  deadlines: {{rendezvous: 60, step: 120, stop: {stop}}}
data: {{path: {data}, batch_size: 32, task_rows: {task_rows}}}
tables: {{embedding: {{dim: 3, rule: {{name: adagrad, learning_rate: 0.01}}}}}}
optimizer: {{name: adam, learning_rate: 0.002, schedule: {{name: linear}}}}
mode: {mode}
model: {{name: deepfm, params: {{hidden: [8]}}}}
"""
MODES = {
    "async": {"mode": "async"},
    "bounded": {"mode": "{name: bounded, staleness: 8}"},
    "geo": {"mode": "{name: geo, steps: 16}", "task_rows": "auto"},  # which is 16 batches
}
AUC = 0.003  # the most by which workers that come and go may change it


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few ids, many rows: whatever the order of the steps, the model that comes out is the same."""
    path = tmp_path_factory.mktemp("data") / "scaling"
    make_synthetic(path, SyntheticSpec(rows=ROWS, test_rows=TEST_ROWS, distinct_ids=130))
    return path


class Job:
    """A launched job; more workers may be started beside it."""

    def __init__(self, directory: Path, data: Path, **keys: str) -> None:
        self.directory, self.data = directory, data
        self.run = directory / "runs/job"
        self.file = directory / "job.yaml"
        settings = {"mode": "async", "stop": "9", "task_rows": "6000", **keys}
        text = JOB.format(output=directory / "runs", data=data, **settings)
        self.file.write_text(text)
        self.program = self.launch("launch")
        self.late: list[Program] = []

    def launch(self, label: str) -> Program:
        command = [*FLEETPS, "launch", "--config", str(self.file)]
        return Program(command, self.directory, env={"FLEETPS_TOKEN": TOKEN}, label=label)

    @contextmanager
    def client(self) -> Iterator[CoordinatorClient]:
        self.program.wait_for_output("coordinator on")
        address = (self.run / "coordinator.address").read_text().strip()
        with CoordinatorClient(address, TOKEN) as client:
            yield client

    def wait(self, client: CoordinatorClient, what: str, true: Callable[[Status], bool]) -> None:
        """Until the status is so."""
        wait_until(lambda: true(client.status()), 120, what, self.program.everything)

    def at_work(self, client: CoordinatorClient, *ranks: int) -> None:
        """Until these workers train."""
        start = {worker.rank: worker.rows for worker in client.status().workers}
        for rank in ranks:
            self.wait(
                client,
                f"rows of worker {rank}",
                lambda s, r=rank: any(
                    w.rank == r and w.state == "running" and w.rows > start.get(r, 0)
                    for w in s.workers
                ),
            )

    def join(self) -> None:
        address = (self.run / "coordinator.address").read_text().strip()
        env = {"ROLE": "WORKER", "COORDINATOR": address, "FLEETPS_TOKEN": TOKEN}
        command = [*TRAIN, "--config", str(self.file)]
        label = f"late-{len(self.late)}"
        self.late.append(Program(command, self.directory, env=env, label=label))

    def leave(self, program: Program) -> None:
        """SIGTERM to an agent that was started by hand."""
        program.send(signal.SIGTERM)
        assert program.exit_code(GRACE) == EXIT_OK, program.everything()

    def end(self) -> None:
        assert self.program.exit_code(180) == EXIT_OK, self.program.everything()
        for program in self.late:
            assert program.exit_code() == EXIT_OK, program.everything()

    def finish(self) -> None:
        self.end()
        nobody_left()

    @property
    def auc(self) -> float:
        return float(json.loads((self.run / "result.json").read_text())["final"]["auc"])

    def shows(self) -> Counter[int]:
        """How often each id was trained, as the last checkpoint's tables say."""
        (*_, last) = sorted((self.run / "checkpoints").iterdir())
        found: Counter[int] = Counter()
        for file in (last / "tables/000").glob("part-*.gz"):
            for line in gzip.decompress(file.read_bytes()).splitlines():
                key, _slot, _unseen, _delta, show, *_ = line.split()
                found[int(key)] += int(float(show))
        return found

    def expected_shows(self) -> Counter[int]:
        """How often each id is in the data."""
        dataset = load_dataset(self.data)
        found: Counter[int] = Counter()
        for shard in dataset.split("train").shards:
            text = b"".join(pipe.read_blocks(dataset.shard_path(shard)))
            for line in text.splitlines():
                found.update(ids_of(line, dataset.columns))
        return found

    def all_trained_once(self) -> None:
        found = json.loads((self.run / "result.json").read_text())["accounting"]
        assert found["total"] == found["done"] == ROWS + TEST_ROWS
        assert found["repeated"] == 0
        assert found["leased"] == found["done"] + found["returned"]


def ids_of(line: bytes, columns: Sequence[Column]) -> Iterator[int]:
    """Of a row of the data set: for each column the number of its values, then these."""
    words = iter(line.split())
    for column in columns:
        values = [next(words) for _ in range(int(next(words)))]
        if column.kind == "sparse":
            yield from map(int, values)


def leave(agent: psutil.Process) -> None:
    """SIGTERM to an agent."""
    agent.terminate()
    agent.wait(GRACE)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> float:
    """In mode async; the AUC."""
    job = Job(tmp_path_factory.mktemp("undisturbed"), data)
    job.end()
    return job.auc


@pytest.mark.parametrize("mode", MODES)
def test_two_four_one(tmp_path: Path, data: Path, undisturbed: float, mode: str) -> None:
    """Workers come and leave; the one that was there from the beginning trains to the end.

    Those who would meanwhile train all that there is are stopped for a while.
    """
    job = Job(tmp_path, data, **MODES[mode])
    with job.client() as client:
        job.at_work(client, 0, 1)
        first, second = (
            one("fleetps.training.worker", env=f"PADDLE_TRAINER_ID={rank}") for rank in (0, 1)
        )
        first.suspend()
        second.suspend()
        job.join()
        job.join()
        job.at_work(client, 2, 3)
        second.resume()
        leave(one("fleetps.main", env="WORKER_INDEX=1"))
        for program in job.late:
            job.leave(program)
        first.resume()
        job.at_work(client, 0)
    job.finish()
    assert {e["who"] for e in events(job.run, "worker-left")} == {
        "worker 1",
        "worker 2",
        "worker 3",
    }
    assert not events(job.run, "worker-lost")
    job.all_trained_once()
    assert job.auc == pytest.approx(undisturbed, abs=AUC)
    if mode != "geo":  # whose tables count no shows
        assert job.shows() == job.expected_shows()


def test_a_sync_worker_and_a_server_leave_a_checkpoint(tmp_path: Path, data: Path) -> None:
    """What was trained before they left is not trained again."""
    job = Job(tmp_path, data, mode="sync", task_rows="1500")
    with job.client() as client:
        job.at_work(client, 0, 1)
        leave(one("fleetps.main", env="WORKER_INDEX=1"))
        job.join()
        job.at_work(client, 0, 1)
        leave(one("fleetps.main", env="ROLE=SERVER"))
    job.finish()
    worker, server = events(job.run, "generation")
    assert worker["who"] == "worker 1"
    assert worker["text"].startswith("left before the job was done; in mode sync")
    assert server["who"] == "server 0"
    again = 0  # what was trained between the checkpoint and the end of who left
    for begins, saved in zip((worker, server), events(job.run, "checkpoint"), strict=False):
        assert f" ({begins['who']} was asked to stop" in saved["text"]
        assert f"begins with checkpoint {saved['text'].split(':')[0]} " in begins["text"]
        again += int(begins["text"].rpartition("; ")[2].split()[0])
    accounting = json.loads((job.run / "result.json").read_text())["accounting"]
    assert accounting["repeated"] <= again + 2 * 2 * 3000  # and groups that were under way


def test_all_leave_then_the_job_is_told_to_end(tmp_path: Path, data: Path) -> None:
    """A checkpoint is made in the middle of tasks, and the job goes on from there."""
    job = Job(tmp_path, data)
    with job.client() as client:
        job.at_work(client, 0, 1)
        for agent in [one("fleetps.main", env=f"WORKER_INDEX={rank}") for rank in (0, 1)]:
            leave(agent)
        job.join()
        job.at_work(client, 0)
    assert events(job.run, "worker-left")[1]["text"].endswith("the job waits for another worker")
    job.program.send(signal.SIGTERM)
    assert job.program.exit_code(30) == EXIT_STOPPED, job.program.everything()
    nobody_left()
    (saved,) = events(job.run, "checkpoint")
    assert saved["text"].endswith("(the job was asked to stop)")
    assert job.program.err == "stopped by SIGTERM\n"
    job.program, job.late = job.launch("again"), []
    job.finish()
    (again,) = events(job.run, "generation")
    assert again["text"].endswith("; 0 rows are trained again")
    job.all_trained_once()
    assert job.shows() == job.expected_shows()
