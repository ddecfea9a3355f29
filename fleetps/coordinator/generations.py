"""When servers are lost: everybody begins again from the last checkpoint, in a new generation.

Servers hold the rows that all workers have learnt. When one is gone, what the others hold no longer
fits together, so all processes end, all servers begin empty, a checkpoint is loaded, and what was
done after it goes back to the queue.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fleet_config.errors import UserError
from fleetps.checkpoint import fits
from fleetps.checkpoint.choose import to_warm_start
from fleetps.checkpoint.format import data_record
from fleetps.checkpoint.store import Checkpoint, open_checkpoint
from fleetps.coordinator.base import Base
from fleetps.coordinator.checkpoints import Checkpointing
from fleetps.coordinator.choice import Cause, Choice, none_left
from fleetps.coordinator.lifecycle import COORDINATOR, Death, Lifecycle
from fleetps.coordinator.members import Members
from fleetps.coordinator.pace import Pace
from fleetps.coordinator.progress import Progress
from fleetps.coordinator.resume import fetch_lost, find
from fleetps.coordinator.saved import SAVED, WARM, SavedCheckpoints, count_as_done, rewind
from fleetps.coordinator.schema import CheckpointRow, JobRow
from fleetps.coordinator.task_maker import TRAIN_SPLIT, TaskMaker
from fleetps.coordinator.task_queue import TaskQueue

_MOST_BARREN = 3
_KINDS = _RESUMED, _WARM, _GENERATION, _DAMAGED = (
    "resumed",
    "warm-start",
    "generation",
    "checkpoint-damaged",
)


class Generations:
    def __init__(
        self,
        base: Base,
        members: Members,
        life: Lifecycle,
        queue: TaskQueue,
        pace: Pace,
        checkpoints: Checkpointing,
        tasks: TaskMaker,
    ) -> None:
        self._job = base.job
        self._dataset = base.dataset
        self._workers = base.workers
        self._store = base.store
        self._events = base.events
        self._wall = base.wall
        self._members = members
        self._life = life
        self._queue = queue
        self._pace = pace
        self._checkpoints = checkpoints
        self._tasks = tasks
        self._saved = SavedCheckpoints(base.store)
        # For displays.
        self.told = [
            f"{who}: {text}" for kind in _KINDS for who, text in base.store.events_of(kind)
        ]

    def _tell(self, kind: str, who: str, text: str) -> None:
        self._events.add(kind, who, text)
        self.told.append(f"{who}: {text}")

    def open(self, who: str, death: Death, workers: int = 0) -> None:
        """Begin again from the last checkpoint, or from the beginning; or fail after too many.

        Processes may end and come again while the checkpoint is being chosen (`candidates`).

        `workers`: how many must come; 0: as many as are there.
        """
        row = self._life.row
        if self._life.over:
            return
        if self._job.cluster.generations == 0:
            self._life.fail_by_death(who, death)
            return
        too_many = self._too_many(row.barren, row.tries)
        if too_many:
            self._life.fail_by_death(who, death.because(too_many))
            return
        self._checkpoints.break_off(f"{who}: {death.reason}", again=False)
        self._queue.take_back_all()
        self._pace.begin_again()
        number = row.generation + 1
        needed = workers or self._needed()
        self._members.begin_generation(number, needed)
        self._life.enter(
            "rendezvous",
            generation=number,
            restore="",
            cause=Cause(who, death.reason).to_json(),
            workers=needed,
            train_seconds=row.train_seconds + self._in_training(row),
            barren=row.barren + 1,
            tries=row.tries + 1,
            tasks_since=0,
            rows_since=0,
        )

    def candidates(self) -> Sequence[CheckpointRow] | None:
        """Those that the present generation may begin with, newest first; None: it has begun."""
        return self._saved.saved() if self._life.row.cause and not self._life.over else None

    def begin_with(self, number: int, choice: Choice) -> None:
        """The checkpoint of generation `number` was chosen: go back to it.

        None that is left is a failure: they may come back, and a new beginning would remove them.
        """
        row = self._life.row
        if self._life.over or row.generation != number or not row.cause:
            return
        for sentence in choice.damaged:
            self._tell(_DAMAGED, COORDINATOR, sentence)
        cause = Cause.from_json(row.cause)
        if choice.row is None and choice.damaged:
            self._life.fail(cause.who, f"{cause.reason}; {none_left(choice.damaged[0])}")
            return
        restore, progress = str(self._saved.warm() or ""), _BEGINNING
        if choice.row is not None:
            restore = str(choice.row.path)
            progress = Progress.model_validate_json(choice.row.progress or "")
        lost = rewind(self._store, self._with_paths(progress), number, self._wall())
        self._life.enter(
            "rendezvous",
            restore=restore,
            cause="",
            epoch=progress.epoch,
            goes_on=progress.goes_on,
            rows_leased=progress.rows,
        )
        where = _where(restore, progress)
        text = f"{cause.reason}; generation {number} begins {where}; {lost} rows are trained again"
        self._tell(_GENERATION, cause.who, text)

    def _in_training(self, row: JobRow) -> float:
        """Seconds of training that nobody has counted yet."""
        return self._wall() - row.phase_started if row.phase == "train" else 0.0

    def _too_many(self, barren: int, tries: int) -> str:
        if barren >= _MOST_BARREN:
            return f"no task was done in the last {barren} generations"
        if tries >= self._job.cluster.generations:
            return f"{tries} generations have begun since the last checkpoint (cluster.generations)"
        return ""

    def _needed(self) -> int:
        """Workers that left or were given up are not waited for, except where all are needed."""
        if "sync" in self._job.mode_names:
            return self._workers
        return max(min(self._workers, len(self._members.live("worker"))), 1)

    def _with_paths(self, progress: Progress) -> Progress:
        """Shards as they are named in tasks."""
        shards = self._dataset.split(TRAIN_SPLIT).shards
        names = {shard.file: str(self._dataset.shard_path(shard)) for shard in shards}
        return progress.renamed(names)

    # -- the beginning --

    def begin(self, *, local: bool, again: bool) -> None:
        """This coordinator begins; see `JobService`."""
        row = self._store.job()
        if row is None:
            self._store.create_job(self._job.digest(), self._workers, self._wall())
            self._events.add("created", COORDINATOR, f"job {self._job.job.name}")
            if not local:
                self._begin_afresh()
        elif row.state == "done":
            self._events.add("restarted", COORDINATOR, "the job is done, and stays so")
        elif again or row.state not in ("waiting", "running"):
            self._begin_again()
        else:
            self._events.add("restarted", COORDINATOR, "the coordinator goes on where it was")

    def _begin_again(self) -> None:
        """All processes of the job are new; the state is that of its former ones."""
        fetch_lost(self._job)
        self._check_data()
        for member in self._members.all_live():
            self._members.set_gone(member, "exited")
        self._store.set_job(
            state="running",
            reason="",
            exit_code=None,
            failure=None,
            finished=None,
            barren=0,
            tries=0,
        )
        self.open(COORDINATOR, Death("the job was started again"), workers=self._workers)

    def _check_data(self) -> None:
        """The tasks of the state are about certain data, which may have been made anew since."""
        for row in self._saved.saved():
            try:
                checkpoint = open_checkpoint(row.path)
            except UserError:
                continue  # damaged or removed
            fits.check_data(checkpoint.path, checkpoint.manifest, data_record(self._dataset))
            return

    def _begin_afresh(self) -> None:
        """The state is fresh: go on from what a checkpoint says, if there is one to go on from."""
        found = find(self._job, self._dataset)
        if found is None:
            if self._job.checkpoint.warm_start:
                self._begin_warm(self._job.checkpoint.warm_start)
            return
        checkpoint, progress = found
        progress = self._tasks.enough_left(self._with_paths(progress))
        self._tasks.make_again(progress)
        now = self._wall()
        count_as_done(self._store, progress, checkpoint.name, now)
        for result in progress.history:
            self._store.save_epoch(result.epoch, result.model_dump_json())
        self._saved.add(_as_row(checkpoint, SAVED, checkpoint.manifest.number, now))
        rows = self._store.rows_by_state(training=True).get("done", 0)
        self._store.set_job(
            restore=str(checkpoint.path),
            epoch=progress.epoch,
            goes_on=progress.goes_on,
            rows_leased=rows,
            train_seconds=progress.train_seconds,
        )
        where = _where(str(checkpoint.path), progress)
        self._tell(_RESUMED, COORDINATOR, f"goes on {where}")

    def _begin_warm(self, where: Path) -> None:
        checkpoint = to_warm_start(where, self._job, self._dataset)
        self._saved.add(_as_row(checkpoint, WARM, 0, self._wall()))
        self._store.set_job(restore=str(checkpoint.path))
        text = f"begins with the weights of {checkpoint.path}"
        self._tell(_WARM, COORDINATOR, text)


_BEGINNING = Progress(
    seed=0, epoch=0, goes_on="train", done={}, rows=0, loss_sum=0.0, train_seconds=0.0, history=()
)


def _where(restore: str, progress: Progress) -> str:
    if not progress.rows:
        return "from the beginning, as there is no checkpoint yet"
    return (
        f"with checkpoint {Path(restore).name} (epoch {progress.epoch + 1}, "
        f"{progress.rows} rows trained)"
    )


def _as_row(checkpoint: Checkpoint, state: str, number: int, now: float) -> CheckpointRow:
    progress = checkpoint.manifest.progress
    return CheckpointRow(
        number=number,
        generation=0,
        state=state,
        directory=str(checkpoint.path),
        name=checkpoint.name,
        saver=None,
        reason="an earlier run",
        rows=int(str(progress["rows"])),
        began=now,
        drained=now,
        ended=now,
        progress=json.dumps(progress),
    )
