"""The worker child: `python -m fleetps.training.worker` in a directory with job.json.

The loop: lease a task, read it, train or evaluate it, report it done; the next one is read
meanwhile. The coordinator decides what comes next, so there is no epoch loop here.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fleetps.training import stopping  # first: before Paddle starts threads  # noqa: F401

from fleetps.training import child, group  # isort: skip

import paddle

from fleet_config.errors import EXIT_STOPPED, FleetError, TryAgain, UserError
from fleet_config.job import Job
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.messages import (
    Chore,
    Finish,
    Flush,
    Lease,
    Stop,
    Task,
    TaskAnswer,
    TaskLease,
    Wait,
)
from fleetps.coordinator.protocol import Coordinator
from fleetps.coordinator.service import JobService
from fleetps.coordinator.splits import SPLITTING
from fleetps.coordinator.tasks import where
from fleetps.data.dataset import Dataset
from fleetps.system.pulse_file import WORKED_FILE
from fleetps.training.engines import Engine, LocalEngine, ServerEngine
from fleetps.training.evaluate import ScoreCounter
from fleetps.training.feed import DataError, Feed, LoadingTask, spoilt_row
from fleetps.training.gate import Gate
from fleetps.training.geo_engine import GeoEngine
from fleetps.training.loss_watch import LossWatch
from fleetps.training.pulse import Pulse
from fleetps.training.reporter import Reporter
from fleetps.training.schedule import factor
from fleetps.training.snapshot import not_finite
from fleetps.training.status_file import STATUS_FILE, status_file
from fleetps.training.step_hook import StepHook

log = logging.getLogger(__name__)

# Parameters that are no numbers before a batch of this worker may have been spoilt by another one,
# which is to be heard first.
_OTHERS_SECONDS = 2.0


class Worker:
    """Trains and evaluates what the coordinator leases to it, until the job is finished."""

    _task: Task  # that is being trained

    def __init__(
        self, job: Job, dataset: Dataset, client: Coordinator, instance: str, engine: Engine
    ) -> None:
        self._job = job
        self._client = client
        self._instance = instance
        self._engine = engine
        self._pulse = Pulse(job.cluster.deadlines)
        self._gate = Gate(client, instance, job, self._pulse)
        losses = LossWatch(job.watch.explode)
        self._hook = StepHook(self._after_batch, losses, self._diverged)
        self._scores = ScoreCounter()
        self._programs = engine.build(job, dataset, self._hook, self._scores)
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        self._feed = Feed(
            self._programs.feeds, dataset.columns, job.cluster.threads, Path("slices").absolute()
        )
        self._total_steps = job.job.epochs * dataset.split("train").rows // job.data.batch_size
        self._training = True
        self._reporter = Reporter(
            client,
            instance,
            self._hook,
            job.cluster,
            engine.flush,
            self._attend,
            self._gate,
            self._pulse,
        )
        self._pulse.beat()

    def _after_batch(self, ending: Callable[[], bool]) -> None:
        self._pulse.step()
        self._gate.after_batch(ending)

    def run(self) -> None:
        """Work until the coordinator says that the job is finished.

        Raises:
            TryAgain: the job failed elsewhere, or the coordinator or a peer is gone.
            UserError: a file of the data set is damaged, or a prediction is no number.
        """
        ahead: LoadingTask | None = None
        while True:
            self._reporter.rest_if_asked()
            if ahead is not None:
                ahead = self._work(ahead)
                continue
            lease = self._client.lease(self._instance)
            if isinstance(lease, Finish):
                break
            ahead = self._follow(lease)
        self._engine.flush()
        self._engine.close()

    def asks_on(self) -> None:
        """The coordinator doesn't answer. Its agent judges that: this process is well."""
        self._pulse.beat()

    def _attend(self) -> NoReturn:
        """Do what the coordinator says until the end, beside the training that rests for ever."""
        while True:
            self._pulse.beat()
            lease = self._client.lease(self._instance)
            if isinstance(lease, Stop):
                child.end(EXIT_STOPPED)
            if isinstance(lease, TaskLease | Finish):
                raise TryAgain("the job goes on after all, and this process had stopped training")
            self._follow(lease)

    def _follow(self, lease: Lease) -> LoadingTask | None:
        """Do what the coordinator says; returns the task that is being read meanwhile."""
        if isinstance(lease, TaskLease):
            return self._work(self._start(lease.task))
        if isinstance(lease, Stop):
            raise TryAgain(lease.reason)
        if isinstance(lease, Flush):
            with self._pulse.silence(self._job.cluster.deadlines.barrier):
                self._engine.flush()
                if lease.save:
                    self._engine.leave_state(Path(lease.save))
            self._client.arrive(self._instance, lease.name)
        elif isinstance(lease, Chore):
            deadlines = self._job.cluster.deadlines
            saves = lease.action == "save"
            with self._pulse.silence(deadlines.checkpoint if saves else deadlines.barrier):
                note = self._engine.chore(lease)
            self._client.arrive(self._instance, lease.name, note)
        elif isinstance(lease, Wait):
            time.sleep(lease.seconds)
        return None

    def _start(self, task: Task) -> LoadingTask:
        size = self._job.data.batch_size if task.training else self._job.evaluate.batch_size
        return self._feed.start(task, size)

    def _work(self, loading: LoadingTask) -> LoadingTask | None:
        task = loading.task
        try:
            with self._pulse.silence(self._job.cluster.deadlines.first_step):
                data = loading.wait()
            ahead = self._lease_ahead()
            self._train(task, data) if task.training else self._evaluate(task, data)
        except DataError as error:
            self._client.failed(self._instance, task.id, str(error))
            return None
        finally:
            loading.release()
        return ahead

    def _lease_ahead(self) -> LoadingTask | None:
        lease = self._client.lease(self._instance)
        return self._start(lease.task) if isinstance(lease, TaskLease) else None

    def _train(self, task: Task, data: Any) -> None:
        self._training, self._task = True, task
        mode = self._job.mode_of(task.epoch).name
        with self._pulse.silence(self._job.cluster.deadlines.barrier):
            together = self._engine.enter(mode)
            self._engine.prepare(data, training=True)
        first = task.rows_before // self._job.data.batch_size
        name = f"task {task.id} ({where(task.slices)})"
        # The steps of a schedule are batches of all workers.
        self._hook.begin(
            name,
            lambda step: self._rate(first + together * step),
            self._programs.learning_rate,
            padded=task.pad > 0,
        )
        in_order = self._job.cluster.threads == 1 and mode in SPLITTING
        self._reporter.begin(task.id, in_order=in_order, alone=mode != "sync")
        self._gate.begin(task.epoch, self._reporter.ends)
        self._reporter.rest_if_asked()
        self._hook.times.task_begins()
        with self._pulse.task(name, alone=together == 1), group.steps_of_all():
            self._executor.train_from_dataset(
                self._programs.train[mode], data, thread=self._job.cluster.threads
            )
        self._hook.times.task_ended()
        if spoilt := not_finite(self._programs.dense):
            self._diverged(f"the dense parameter {spoilt} holds nan or inf at the end of {name}")
        with self._pulse.silence(self._job.cluster.deadlines.barrier):
            self._engine.task_done()
        self._reporter.end()
        counts = self._hook.counts()
        answer = self._client.done(
            self._instance, task.id, counts.rows, counts.steps, counts.loss_sum
        )
        _heed(answer, task)

    def _diverged(self, reason: str) -> NoReturn:
        """End the process: what it would learn from here on is as bad."""
        row = spoilt_row(self._task.slices)
        if row:
            reason = f"{reason}; {row}"
        elif not_finite(self._programs.dense):
            time.sleep(_OTHERS_SECONDS)
        try:
            state = self._client.diverged(self._instance, self._task.id, reason)
        except FleetError as error:  # the coordinator is gone
            child.leave(error)
        child.leave(UserError(state.reason) if state.job == "failed" else TryAgain(reason))

    def _rate(self, step: int) -> float:
        settings = self._job.optimizer
        return settings.learning_rate * factor(settings.schedule, step, self._total_steps)

    def _evaluate(self, task: Task, data: Any) -> None:
        if self._training:
            # Everybody has flushed before the coordinator leases the first evaluation task.
            self._engine.refresh()
            self._training = False
        with self._pulse.silence(self._job.cluster.deadlines.barrier):
            self._engine.prepare(data, training=False)
        self._scores.reset()
        self._executor.infer_from_dataset(
            self._programs.evaluate, data, thread=self._job.cluster.threads
        )
        result = self._scores.result()
        answer = self._client.done(
            self._instance, task.id, result.rows, 0, result.log_loss_sum, result
        )
        _heed(answer, task)


def _heed(answer: TaskAnswer, task: Task) -> None:
    if answer.accepted:
        Path(WORKED_FILE).touch()
    else:
        log.warning("task %d: %s", task.id, answer.note)


def work() -> None:
    """Body of the worker child, with servers or (FLEETPS_LOCAL=1) without."""
    if os.environ.get("FLEETPS_LOCAL") == "1":
        _work_alone()
        return
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    instance = os.environ["FLEETPS_INSTANCE"]
    job, dataset = child.load(rank)
    client = CoordinatorClient.from_environment()
    engine = GeoEngine if "geo" in job.mode_names else ServerEngine
    worker = Worker(job, dataset, client, instance, engine(client, instance, rank))
    client.on_silence = worker.asks_on
    worker.run()


def _work_alone() -> None:
    job, dataset = child.load(0)
    instance = os.environ["FLEETPS_INSTANCE"]
    service = JobService(job, dataset, local=True)
    with status_file(service, Path(STATUS_FILE)):
        service.register("worker", instance, "localhost", 0, job.digest())
        Worker(job, dataset, service, instance, LocalEngine()).run()
        service.heartbeat(instance, "exited")


if __name__ == "__main__":
    child.run(work)
