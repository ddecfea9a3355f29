"""The order of things: rendezvous; for each epoch train, flush, chore, evaluate; then finish."""

from __future__ import annotations

from fleetps.coordinator.base import Base
from fleetps.coordinator.lifecycle import COORDINATOR, Lifecycle
from fleetps.coordinator.members import Member, Members
from fleetps.coordinator.messages import Evaluation
from fleetps.coordinator.metrics import Metrics, merge
from fleetps.coordinator.reports import EpochResult
from fleetps.coordinator.schema import JobRow
from fleetps.coordinator.task_maker import TRAIN_SPLIT, TaskMaker


class Phases:
    def __init__(
        self,
        base: Base,
        members: Members,
        life: Lifecycle,
    ) -> None:
        self._job = base.job
        self._dataset = base.dataset
        self._store = base.store
        self._events = base.events
        self._wall = base.wall
        self._members = members
        self._life = life
        self._tasks = TaskMaker(base, life)

    @property
    def train_rows(self) -> int:
        """Of one epoch."""
        return self._dataset.split(TRAIN_SPLIT).rows

    def advance(self) -> None:
        """Go on as far as the state allows. Cheap when there is nothing to do."""
        while not self._life.over and self._step(self._life.row):
            pass

    def _step(self, row: JobRow) -> bool:
        steps = {
            "rendezvous": self._rendezvous,
            "train": self._train,
            "flush": self._flush,
            "chore": self._chore,
            "evaluate": self._evaluate,
            "finish": self._finish,
        }
        return steps[row.phase](row)

    def _rendezvous(self, _: JobRow) -> bool:
        if self._members.missing():
            return False
        self._store.set_job(state="running")
        count = self._members.count
        text = f"everybody is there: servers {count('server')}, workers {count('worker')}"
        self._events.add("started", COORDINATOR, text)
        self._start_epoch(0)
        return True

    def _start_epoch(self, epoch: int) -> None:
        before = epoch * self.train_rows
        self._tasks.make_training(epoch, before)
        now = self._wall()
        self._life.enter("train", epoch=epoch, epoch_started=now, rows_leased=before)
        text = f"epoch {epoch + 1} of {self._job.job.epochs}: {self.train_rows} rows to train"
        self._events.add("epoch", COORDINATOR, text)

    def _train(self, row: JobRow) -> bool:
        if self._store.unfinished(row.epoch, training=True):
            return False
        seconds = self._wall() - row.phase_started
        self._life.enter("flush", train_seconds=row.train_seconds + seconds)
        return True

    def flush_name(self, row: JobRow) -> str:
        return f"flush-{row.epoch}"

    def not_flushed(self, row: JobRow) -> list[Member]:
        """Only those that ever asked for work: a late joiner still starting has nothing to push."""
        arrived = self._arrived(row, self.flush_name(row))
        return [worker for worker in self._active() if worker.instance not in arrived]

    def _arrived(self, row: JobRow, name: str) -> set[str]:
        return {arrival.instance for arrival in self._store.arrivals(row.generation, name)}

    def _active(self) -> list[Member]:
        return [worker for worker in self._members.live("worker") if worker.active]

    def _flush(self, row: JobRow) -> bool:
        if self.not_flushed(row):
            return False
        if self._shrinks(row.epoch):
            self._life.enter("chore")
        else:
            self._evaluate_or_close(row)
        return True

    def _shrinks(self, epoch: int) -> bool:
        """Some table's rows are up for eviction."""
        evictions = (table.eviction for table in self._job.tables.values())
        return any(e is not None and (epoch + 1) % e.every_epochs == 0 for e in evictions)

    def chore_name(self, row: JobRow) -> str:
        return f"shrink-{row.epoch}"

    def chore_worker(self) -> Member | None:
        """The one that does it for all: the lowest rank that works."""
        return next(iter(self._active()), None)

    def _chore(self, row: JobRow) -> bool:
        if not self._arrived(row, self.chore_name(row)):
            return False
        self._evaluate_or_close(row)
        return True

    def _evaluate_or_close(self, row: JobRow) -> None:
        if self._due(row.epoch):
            self._tasks.make_evaluation(row.epoch)
            self._life.enter("evaluate")
        else:
            self._close_epoch(row, None)

    def _due(self, epoch: int) -> bool:
        """Every so many epochs, and the last one in any case: its result is the job's."""
        every = self._job.evaluate.every_epochs
        return bool(every) and ((epoch + 1) % every == 0 or epoch + 1 == self._job.job.epochs)

    def _evaluate(self, row: JobRow) -> bool:
        if self._store.unfinished(row.epoch, training=False):
            return False
        texts = self._store.evaluations(row.epoch)
        self._close_epoch(row, merge(Evaluation.model_validate_json(text) for text in texts))
        self._store.drop_evaluations(row.epoch)
        return True

    def _close_epoch(self, row: JobRow, metrics: Metrics | None) -> None:
        rows, loss_sum = self._store.train_sums(row.epoch)
        result = EpochResult(
            epoch=row.epoch,
            train_rows=rows,
            train_loss=loss_sum / rows if rows else None,
            seconds=self._wall() - row.epoch_started,
            evaluated_rows=metrics.rows if metrics else 0,
            auc=metrics.auc if metrics else None,
            log_loss=metrics.log_loss if metrics else None,
            calibration=metrics.calibration if metrics else None,
        )
        self._store.save_epoch(row.epoch, result.model_dump_json())
        self._events.add("epoch-done", COORDINATOR, _sentence(result))
        if row.epoch + 1 < self._job.job.epochs:
            self._start_epoch(row.epoch + 1)
        else:
            self._life.enter("finish")

    def _finish(self, _: JobRow) -> bool:
        """Servers must outlive the workers, so the job is done when the last worker has gone."""
        late = self._members.live("worker")
        if late and self._life.in_phase() < self._job.cluster.deadlines.stop:
            return False
        for worker in late:
            self._events.add("late", worker.name, "did not end after the last task")
        self._life.finish()
        return True


def _sentence(result: EpochResult) -> str:
    text = f"epoch {result.epoch + 1}: trained {result.train_rows} rows in {result.seconds:.1f} s"
    if result.train_loss is not None:
        text += f", loss {result.train_loss:.5f}"
    if result.evaluated_rows:
        auc = "not defined (one label only)" if result.auc is None else f"{result.auc:.5f}"
        text += f"; on {result.evaluated_rows} rows AUC {auc}, log loss {result.log_loss:.5f}"
    return text
