"""The tasks of an epoch: cut, shuffled and stored."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from fleet_config.errors import UserError
from fleet_config.modes import GeoMode
from fleet_config.section import AUTO
from fleetps.coordinator.base import Base
from fleetps.coordinator.lifecycle import Lifecycle
from fleetps.coordinator.messages import Slice
from fleetps.coordinator.progress import Progress, merged, rows_in, split_at
from fleetps.coordinator.schema import NewTask
from fleetps.coordinator.splits import SPLITTING, done_of
from fleetps.coordinator.tasks import Part, auto_task_rows, cut_groups, cut_tasks
from fleetps.coordinator.verdicts import SLICES, slices_text

TRAIN_SPLIT = "train"
_SEED_BITS = 31


class TaskMaker:
    def __init__(self, base: Base, life: Lifecycle) -> None:
        self._job = base.job
        self._dataset = base.dataset
        self._store = base.store
        self._workers = base.workers
        self._life = life
        rows = base.dataset.split(TRAIN_SPLIT).rows
        if "sync" in base.job.mode_names and rows < base.workers:
            raise UserError(
                f"{base.job.data.path}: the split {TRAIN_SPLIT} has {rows} rows for {base.workers} "
                "workers, and in mode sync each needs at least one; lower cluster.workers"
            )

    def make_training(self, epoch: int, rows_before: int) -> None:
        """`rows_before`: training rows of the epochs before."""
        if not self._store.rows_by_state(epoch, training=True):
            self._store.add_tasks(self._training(epoch, self.shards(TRAIN_SPLIT), rows_before))

    def make_evaluation(self, epoch: int) -> None:
        if not self._store.rows_by_state(epoch, training=False):
            split = self._job.evaluate.split
            pieces = self.shards(split)
            self._store.add_tasks(self._for_anybody(epoch, split, pieces, False, training=False))

    def make_again(self, progress: Progress) -> None:
        """All tasks up to the present epoch of a job that goes on in a fresh state.

        Shards are named by their paths in `progress`. Where the cut is another one than before (for
        another number of workers), what is left of the epoch is cut anew.
        """
        shards = self.shards(TRAIN_SPLIT)
        for epoch in range(progress.epoch):
            self._store.add_tasks(self._whole(epoch, shards))
        if progress.goes_on == "evaluate":
            past, _ = _past_and_left(progress, shards)  # not whole: some may be left out
            self._store.add_tasks(self._whole(progress.epoch, past))
            return
        size = sum(shard.rows for shard in shards)
        tasks = list(self._training(progress.epoch, shards, progress.epoch * size))
        if progress.begun or not _fits(progress, tasks):
            tasks = self._cut_rest(progress, shards)
        self._store.add_tasks(tasks)

    def _cut_rest(self, progress: Progress, shards: Sequence[Slice]) -> list[NewTask]:
        epoch = progress.epoch
        begun = progress.begun if self._job.mode_of(epoch).name in SPLITTING else ()
        past, left = _past_and_left(progress, shards, begun)
        past += map(done_of, begun)
        before = epoch * sum(shard.rows for shard in shards) + sum(piece.count for piece in past)
        return [
            *self._whole(epoch, past),
            *(self._task(epoch, TRAIN_SPLIT, -1, Part((rest,), 0), seed=None) for rest in begun),
            *self._training(epoch, left, before),
        ]

    def enough_left(self, progress: Progress) -> Progress:
        """In mode sync, what is left must be at least a row for each worker.

        Where it is less, the last rows that were done are trained with it once more.
        """
        if progress.goes_on != "train" or self._job.mode_of(progress.epoch).name != "sync":
            return progress
        shards = self.shards(TRAIN_SPLIT)
        done, (_, left) = split_at(progress.done, shards)[0], _past_and_left(progress, shards)
        missing = self._workers - sum(piece.rows for piece in left)
        if not left or missing <= 0:
            return progress
        while missing > 0 and done:
            missing -= done.pop().rows
        return progress.model_copy(update={"done": merged(done)})

    def _whole(self, epoch: int, pieces: Sequence[Slice]) -> Iterator[NewTask]:
        """One task for each piece, before all others."""
        for index, piece in enumerate(pieces):
            part = Part((piece,), 0)
            yield self._task(epoch, TRAIN_SPLIT, index - len(pieces), part, seed=None, before=0)

    def _training(self, epoch: int, pieces: Sequence[Slice], rows_before: int) -> Iterator[NewTask]:
        if self._job.mode_of(epoch).name == "sync":
            return self._in_groups(epoch, pieces, rows_before)
        shuffle = self._job.data.shuffle
        return self._for_anybody(epoch, TRAIN_SPLIT, pieces, shuffle, training=True)

    def _for_anybody(
        self, epoch: int, split: str, pieces: Sequence[Slice], shuffle: bool, *, training: bool
    ) -> Iterator[NewTask]:
        tasks = cut_tasks(pieces, self._task_rows(split), self._threads)
        order = self._order(epoch)
        seeds = [order.getrandbits(_SEED_BITS) if shuffle else None for _ in tasks]
        if shuffle:
            order.shuffle(tasks)
        for position, (slices, seed) in enumerate(zip(tasks, seeds, strict=True)):
            part = Part(slices, 0)
            yield self._task(epoch, split, position, part, training=training, seed=seed)

    def _in_groups(
        self, epoch: int, pieces: Sequence[Slice], rows_before: int
    ) -> Iterator[NewTask]:
        """Every worker goes through the groups in the same order."""
        groups = cut_groups(
            pieces,
            self._task_rows(TRAIN_SPLIT),
            self._threads,
            self._workers,
            self._job.data.batch_size,
        )
        order = self._order(epoch)
        if self._job.data.shuffle:
            order.shuffle(groups)
        sizes = (sum(part.rows for part in group) for group in groups)
        position = 0
        for group, before in zip(groups, accumulate(sizes, initial=rows_before), strict=False):
            for rank, part in enumerate(group):
                seed = order.getrandbits(_SEED_BITS) if self._job.data.shuffle else None
                yield self._task(
                    epoch, TRAIN_SPLIT, position, part, rank=rank, before=before, seed=seed
                )
                position += 1

    def _task(
        self,
        epoch: int,
        split: str,
        position: int,
        part: Part,
        *,
        seed: int | None,
        training: bool = True,
        rank: int | None = None,
        before: int | None = None,
    ) -> NewTask:
        return NewTask(
            generation=self._life.row.generation,
            epoch=epoch,
            training=training,
            split=split,
            position=position,
            slices=slices_text(part.slices),
            rows=part.rows,
            part=rank,
            pad=part.pad,
            rows_before=before,
            shuffle_seed=seed,
        )

    @property
    def _threads(self) -> int:
        return self._job.cluster.threads

    def _order(self, epoch: int) -> random.Random:
        return random.Random(f"{self._job.job.seed} {epoch}")  # noqa: S311 - repeatable, not secret

    def shards(self, split: str) -> list[Slice]:
        """Each shard of a split as a whole."""
        shards = self._dataset.split(split).shards
        paths = [str(self._dataset.shard_path(shard)) for shard in shards]
        return [
            Slice(shard=path, start=0, rows=shard.rows)
            for path, shard in zip(paths, shards, strict=True)
        ]

    def _task_rows(self, split: str) -> int:
        mode = self._job.mode_of(0)
        if split == TRAIN_SPLIT and isinstance(mode, GeoMode):
            return mode.steps * self._job.data.batch_size  # exchanges are between tasks
        size = self._job.data.task_rows
        if size == AUTO:
            return auto_task_rows(self._dataset.split(split).rows, self._workers)
        return size


def _past_and_left(
    progress: Progress, shards: Sequence[Slice], begun: Sequence[Slice] = ()
) -> tuple[list[Slice], list[Slice]]:
    """The pieces that are done, then those that are left out; and what nobody has begun."""
    past = [*split_at(progress.done, shards)[0], *split_at(progress.skipped, shards)[0]]
    return past, split_at(merged([*past, *begun]), shards)[1]


def _fits(progress: Progress, tasks: Sequence[NewTask]) -> bool:
    """Every task, or group of tasks, is done or has not been begun."""
    rows: Counter[int] = Counter()
    done: Counter[int] = Counter()
    for task in tasks:
        group = task.position if task.rows_before is None else task.rows_before
        rows[group] += task.rows
        done[group] += rows_in(progress.done, SLICES.validate_json(task.slices))
    return all(done[group] in (0, rows[group]) for group in rows)
