"""Taking checkpoints: when, and in which steps. Who writes them is a worker; see docs.

Nobody gets new tasks; who has none left flushes; when all have, one worker saves.
"""

from __future__ import annotations

import math

from fleet_config.errors import EXIT_TRY_AGAIN, TryAgain, UserError
from fleetps.checkpoint.store import Checkpoints
from fleetps.coordinator.base import Base
from fleetps.coordinator.groups import begun_waiting
from fleetps.coordinator.lifecycle import COORDINATOR, Lifecycle
from fleetps.coordinator.members import Member
from fleetps.coordinator.messages import SAVE_ERROR, Chore, Flush
from fleetps.coordinator.notices import Notices
from fleetps.coordinator.present import present_progress
from fleetps.coordinator.progress import Progress
from fleetps.coordinator.reports import CheckpointStatus
from fleetps.coordinator.saved import SavedCheckpoints
from fleetps.coordinator.schema import CheckpointRow, JobRow
from fleetps.coordinator.task_queue import TaskQueue
from fleetps.coordinator.upkeep import Upkeep

_MOST_FAILURES = 3  # in a row
_LOADING = ("rendezvous", "restore")  # or about to load one: nothing else is done with them then
_MINUTE = 60.0


class Checkpointing:
    def __init__(self, base: Base, life: Lifecycle, queue: TaskQueue, notices: Notices) -> None:
        self._base = base
        self._job = base.job
        self._store = base.store
        self._workers = base.workers
        self._events = base.events
        self._wall = base.wall
        # Without servers there is nobody to lose.
        self.offered = base.servers > 0
        self._life = life
        self._queue = queue
        self._notices = notices
        self._every = base.job.checkpoint.every
        self._directory = Checkpoints(base.job.checkpoint_dir)
        self._saved = SavedCheckpoints(base.store)
        self._upkeep = Upkeep(base.job, base.run_dir, base.clock)

    # -- when --

    def ask(self, reason: str) -> None:
        """Take one as soon as it can be."""
        row = self._life.row
        if not self.offered:
            raise TryAgain("this job trains in one process and takes no checkpoints")
        if self._life.over:
            raise TryAgain(f"the job is {row.state}: no checkpoint can be taken any more")
        last = row.epoch + 1 == self._job.job.epochs
        if row.phase == "finish" or (row.phase == "evaluate" and last):
            raise TryAgain("everything is trained: no other checkpoint is taken")
        self.want(reason or "it was asked for")

    def want(self, reason: str) -> None:
        """Take one as soon as it can be, unless one is on its way."""
        if not self.pending:
            self._store.set_job(wanted=reason)

    def trained(self, rows: int) -> None:
        """A training task was done."""
        row = self._life.row
        self._store.set_job(
            tasks_since=row.tasks_since + 1, rows_since=row.rows_since + rows, barren=0
        )

    @property
    def pending(self) -> bool:
        """One is being taken, or was asked for."""
        return self._saved.open() is not None or bool(self._life.row.wanted)

    def evaluated(self) -> None:
        """A task of the evaluation was done."""
        self._store.set_job(barren=0)

    def due(self, row: JobRow) -> str:
        """Why a checkpoint is to be taken now, or nothing."""
        every = self._every
        if not self.offered:
            return ""
        if row.wanted:
            return row.wanted
        if every.tasks and row.tasks_since >= every.tasks:
            return f"{row.tasks_since} tasks since the last"
        if every.rows and row.rows_since >= every.rows:
            return f"{row.rows_since} rows since the last"
        minutes = (self._wall() - row.since) / _MINUTE
        if every.minutes and minutes >= every.minutes and row.tasks_since:
            return f"{minutes:.1f} minutes since the last"
        return ""

    def due_after_epoch(self, row: JobRow) -> str:
        """The same when an epoch is trained. The last one is always worth it."""
        every = self._every.epochs
        ended = row.epoch + 1
        if self.offered and every and (ended % every == 0 or ended == self._job.job.epochs):
            return f"epoch {ended}"
        return self.due(row)

    # -- how --

    def begin(self, row: JobRow, why: str, goes_on: str) -> bool:
        """Stop leasing; False: it failed at once."""
        now = self._wall()
        self._count_anew(now)
        number, directory, failure = self._saved.last_number() + 1, "", ""
        try:
            number = max(number, self._directory.next_number())
            directory = str(self._directory.begin(number))
        except UserError as error:
            failure = str(error)
        self._saved.add(
            CheckpointRow(number, row.generation, "open", directory, reason=why, began=now)
        )
        if failure:
            self._failed(number, failure)
            return False
        self._life.enter("checkpoint", goes_on=goes_on)
        return True

    def flush(self) -> Flush:
        """What a worker without tasks is told."""
        attempt = self._attempt()
        return Flush(name=f"checkpoint-{attempt.number}", save=attempt.directory)

    def drained(self, row: JobRow) -> bool:
        """Nobody has a task left; in mode sync the others of its group have theirs done too."""
        if self._queue.holders() or begun_waiting(self._store, row.epoch, self._workers):
            return False
        attempt = self._attempt()
        if attempt.drained is None:
            now = self._wall()
            self._saved.change(attempt.number, drained=now)
            self._life.again()  # the deadline of the flush counts from here
            if row.goes_on == "train":
                self._store.set_job(train_seconds=row.train_seconds + now - attempt.began)
        return True

    def choose_saver(self, saver: Member) -> None:
        """All have flushed."""
        attempt = self._attempt()
        progress = present_progress(self._base, self._life.row)
        self._saved.change(
            attempt.number,
            saver=saver.instance,
            progress=progress.model_dump_json(),
            rows=progress.rows,
        )
        self._count_anew(self._wall())
        self._life.enter("save")

    def _count_anew(self, now: float) -> None:
        self._store.set_job(wanted="", tasks_since=0, rows_since=0, since=now)

    def chore(self, member: Member) -> Chore | None:
        """What the one that saves is told."""
        attempt = self._attempt()
        if attempt.saver != member.instance:
            return None
        progress = Progress.model_validate_json(attempt.progress or "")
        return Chore(
            name=self.chore_name(),
            action="save",
            epoch=self._life.row.epoch,
            number=attempt.number,
            directory=attempt.directory,
            progress=progress.model_dump(mode="json"),
        )

    def chore_name(self) -> str:
        return f"save-{self._attempt().number}"

    def saver(self, active: list[Member]) -> Member | None:
        """Who saves, unless it died over it."""
        attempt = self._attempt()
        return next((one for one in active if one.instance == attempt.saver), None)

    def ended(self, note: str) -> None:
        """The worker that saved has arrived with this note."""
        attempt = self._attempt()
        if note.startswith(SAVE_ERROR):
            self._failed(attempt.number, note.removeprefix(SAVE_ERROR))
            return
        now = self._wall()
        self._saved.change(attempt.number, state="saved", name=note, ended=now)
        saved = self._saved.saved()[0]
        self._store.set_job(restore=str(saved.path), tries=0, since=now)
        drained = attempt.drained or now
        self._events.add(
            "checkpoint",
            COORDINATOR,
            f"{note}: {attempt.rows} rows trained; {drained - attempt.began:.1f} s until nobody "
            f"trained, then {now - drained:.1f} s pause ({attempt.reason})",
        )

    def break_off(self, why: str, *, again: bool) -> None:
        """Somebody that is needed for it has died."""
        attempt = self._saved.open()
        if attempt is None:
            return
        self._saved.change(attempt.number, state="lost", ended=self._wall(), reason=why)
        self._events.add("checkpoint-lost", COORDINATOR, f"checkpoint {attempt.number}: {why}")
        if again:
            self._store.set_job(wanted=attempt.reason)

    def _failed(self, number: int, why: str) -> None:
        """The job goes on without it, but not for ever."""
        self._saved.change(number, state="failed", ended=self._wall(), reason=why)
        self._events.add("checkpoint-failed", COORDINATOR, f"checkpoint {number}: {why}")
        saved = self._saved.saved()
        failures = len(self._saved.failed_since(saved[0].number if saved else 0))
        if failures >= _MOST_FAILURES:
            reason = f"{failures} checkpoints failed in a row; the last: {why}"
            self._life.fail(COORDINATOR, reason, exit_code=EXIT_TRY_AGAIN)

    def _attempt(self) -> CheckpointRow:
        attempt = self._saved.open()
        if attempt is None:
            raise LookupError("no checkpoint is being taken")
        return attempt

    # -- afterwards --

    def keep_up(self) -> None:
        """Look after what is done with the last one while training goes on; see `Upkeep.look`."""
        row = self._life.row
        if row.phase in _LOADING and not self._life.over:
            self._upkeep.stop()
            return
        for kind, text in self._upkeep.look(self._newest(), self._time_left(row)):
            tell = self._events if kind == "mirrored" else self._notices
            tell.add(kind, COORDINATOR, text)

    def _time_left(self, row: JobRow) -> float:
        """Seconds for a job that stops: what all its processes together have for their end."""
        if row.state != "stopping":
            return math.inf
        deadlines = self._job.cluster.deadlines
        return deadlines.grace + deadlines.stop - self._life.ends_for()

    @property
    def keeps_up(self) -> bool:
        """Something is left to do, and the job didn't fail."""
        return self._life.row.state != "failed" and self._upkeep.busy(self._newest())

    def close(self) -> None:
        """End what is being done."""
        self._upkeep.stop()

    def _newest(self) -> str:
        return next((row.name for row in self._saved.saved()), "")

    def status(self) -> CheckpointStatus:
        """For people."""
        saved = next(iter(self._saved.saved()), None)
        failed = self._saved.failed_since(saved.number if saved else 0)
        status = CheckpointStatus(
            failures=len(failed),
            reason=failed[0].reason if failed else "",
            pending=self.pending,
            upkeep=self.keeps_up,
        )
        if saved is None or saved.ended is None or saved.drained is None:
            return status
        return status.model_copy(
            update={
                "number": saved.number,
                "name": saved.name,
                "age": max(self._wall() - saved.ended, 0.0),
                "rows": saved.rows,
                "pause": saved.ended - saved.drained,
                "drain": saved.drained - saved.began,
            }
        )
