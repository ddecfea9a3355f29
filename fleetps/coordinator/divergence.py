"""A worker's loss that is no number, or explodes: the job stops, or goes on without the task.

What the worker has pushed by then has spoilt the tables and the dense parameters of all. So to go
on means a new generation, from a checkpoint that was taken before.
"""

from __future__ import annotations

from fleet_config.errors import EXIT_USER
from fleetps.coordinator.base import Base
from fleetps.coordinator.generations import Generations
from fleetps.coordinator.lifecycle import Death, Lifecycle
from fleetps.coordinator.members import Member
from fleetps.coordinator.task_queue import TaskQueue

_SKIPPED = "skipped"


class Divergence:
    def __init__(
        self, base: Base, life: Lifecycle, queue: TaskQueue, generations: Generations
    ) -> None:
        self._watch = base.job.watch
        self._store = base.store
        self._events = base.events
        self._servers = base.servers
        self._life = life
        self._queue = queue
        self._generations = generations

    def heard(self, member: Member, task_id: int, reason: str) -> None:
        """This worker's training of a task that it holds has diverged; its process ends."""
        if self._life.over or not self._queue.holds(member, task_id):
            return  # another worker met the same spoilt parameters before, or another thread
        if self._watch.on_nan == "stop":
            self._fail(member, f"{reason}: the training diverged; {_MEND}")
            return
        if not self._servers:
            self._fail(member, f"{reason}; {_NOWHERE}; {_MEND}")
            return
        skipped = len(self._store.events_of(_SKIPPED))
        if skipped >= self._watch.most_skipped:
            self._fail(
                member,
                f"{reason}, and {skipped} tasks have been skipped before (watch.most_skipped): "
                f"it is not the rows of a few; {_MEND}",
            )
            return
        rows = self._queue.skip(task_id)
        self._events.add(_SKIPPED, member.name, f"{reason}: its {rows} rows are left out")
        self._store.set_job(barren=0)  # with this task gone the next generation gets further
        self._generations.open(member.name, Death(f"{reason}; the task is skipped"))

    def _fail(self, member: Member, reason: str) -> None:
        self._life.fail(member.name, reason, exit_code=EXIT_USER)


_NOWHERE = "without servers there is no checkpoint to go back to, as watch.on_nan: skip_task does"
_MEND = (
    "lower optimizer.learning_rate or the tables' learning_rate, or set optimizer.clip_norm, or "
    "look at these rows"
)
