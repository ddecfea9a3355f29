"""The order of things: rendezvous; for each epoch train, flush, chore, evaluate; then finish.

Where the servers begin with a checkpoint `restore` comes after the rendezvous. `checkpoint` (all
flush) and `save` (one saves) may come in the middle of the training and before the evaluation.
"""

from __future__ import annotations

from fleetps.coordinator.base import Base
from fleetps.coordinator.checkpoints import Checkpointing
from fleetps.coordinator.ending import Ending
from fleetps.coordinator.lifecycle import COORDINATOR, Lifecycle
from fleetps.coordinator.members import Member, Members
from fleetps.coordinator.messages import INITIALISED, Evaluation, Flush
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
        checkpoints: Checkpointing,
        ending: Ending,
        tasks: TaskMaker,
    ) -> None:
        self._job = base.job
        self._dataset = base.dataset
        self._store = base.store
        self._events = base.events
        self._wall = base.wall
        self._members = members
        self._life = life
        self._checkpoints = checkpoints
        self._ending = ending
        self._tasks = tasks

    @property
    def train_rows(self) -> int:
        """Of one epoch."""
        return self._dataset.split(TRAIN_SPLIT).rows

    def advance(self) -> None:
        """Go on as far as the state allows. Cheap when there is nothing to do."""
        self._ending.check()
        while not self._life.over and self._step(self._life.row):
            self._ending.check()

    def _step(self, row: JobRow) -> bool:
        steps = {
            "rendezvous": self._rendezvous,
            "restore": self._restore,
            "train": self._train,
            "flush": self._flush,
            "chore": self._chore,
            "checkpoint": self._checkpoint,
            "save": self._save,
            "evaluate": self._evaluate,
            "finish": self._finish,
        }
        return steps[row.phase](row)

    def _rendezvous(self, row: JobRow) -> bool:
        if self._members.missing() or row.cause:
            return False
        self._store.set_job(state="running")
        count = self._members.count
        text = f"everybody is there: servers {count('server')}, workers {count('worker')}"
        self._events.add("started", COORDINATOR, text)
        if row.restore:
            self._life.enter("restore")
        else:
            self._go_on(row)
        return True

    def _restore(self, row: JobRow) -> bool:
        arrivals = self._store.arrivals(row.generation, INITIALISED)
        if not any(arrival.rank == 0 for arrival in arrivals):
            return False
        text = f"{row.restore} was loaded in {self._life.in_phase():.1f} s"
        self._events.add("restored", COORDINATOR, text)
        self._go_on(row)
        return True

    def _go_on(self, row: JobRow) -> None:
        """Where the job was; its epoch may be new."""
        if row.goes_on == "evaluate":
            self._evaluate_or_close(row)
        elif self._store.rows_by_state(row.epoch, training=True).get("done"):
            self._life.enter("train")
        else:
            self._start_epoch(row.epoch)

    def _start_epoch(self, epoch: int) -> None:
        before = epoch * self.train_rows
        self._tasks.make_training(epoch, before)
        now = self._wall()
        self._life.enter(
            "train", epoch=epoch, epoch_started=now, rows_leased=before, goes_on="train"
        )
        text = f"epoch {epoch + 1} of {self._job.job.epochs}: {self.train_rows} rows to train"
        self._events.add("epoch", COORDINATOR, text)

    def _train(self, row: JobRow) -> bool:
        trained = not self._store.unfinished(row.epoch, training=True)
        # With every task leased the end of the epoch is near: then it is taken there.
        waits = not trained and (self._life.ending or self._store.unleased(row.epoch))
        why = self._checkpoints.due(row) if waits else ""
        if not trained and not why:
            return False
        seconds = row.train_seconds + self._wall() - row.phase_started
        if trained:
            self._life.enter("flush", train_seconds=seconds)
        elif self._checkpoints.begin(row, why, "train"):
            self._store.set_job(train_seconds=seconds)
        return True

    def flush(self, row: JobRow) -> Flush:
        """What is to be done by those that have not done it yet."""
        if row.phase == "checkpoint":
            return self._checkpoints.flush()
        return Flush(name=f"flush-{row.epoch}")

    def not_flushed(self, row: JobRow) -> list[Member]:
        """Only those that ever asked for work: a late joiner still starting has nothing to push."""
        arrived = self._arrived(row, self.flush(row).name)
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
            self._trained(row)
        return True

    def _trained(self, row: JobRow) -> None:
        """The epoch is trained, and the tables are as they should be after it."""
        self._store.set_job(goes_on="evaluate")
        why = self._checkpoints.due_after_epoch(row)
        if not why or not self._checkpoints.begin(row, why, "evaluate"):
            self._go_on_after(self._life.row)

    def _checkpoint(self, row: JobRow) -> bool:
        active = self._active()
        if not self._checkpoints.drained(row) or self.not_flushed(row) or not active:
            return False
        self._checkpoints.choose_saver(active[0])
        return True

    def _save(self, row: JobRow) -> bool:
        arrivals = self._store.arrivals(row.generation, self._checkpoints.chore_name())
        if arrivals:
            self._checkpoints.ended(arrivals[0].note)
        elif self._checkpoints.saver(self._active()) is None:
            self._checkpoints.break_off("the worker that saved it died", again=True)
        else:
            return False
        self._go_on_after(self._life.row)
        return True

    def _go_on_after(self, row: JobRow) -> None:
        """A checkpoint was taken, or it failed, or it has to be taken once more."""
        if self._life.over:
            return
        if row.goes_on == "train":
            self._life.enter("train")
        elif not row.wanted or not self._checkpoints.begin(row, row.wanted, "evaluate"):
            self._evaluate_or_close(row)

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
        arrivals = self._store.arrivals(row.generation, self.chore_name(row))
        if not arrivals:
            return False
        if arrivals[0].note:
            self._events.add("shrunk", f"worker {arrivals[0].rank}", arrivals[0].note)
        self._trained(row)
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
        if self._life.ending and row.wanted:
            return self._checkpoints.begin(row, row.wanted, "evaluate")
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
