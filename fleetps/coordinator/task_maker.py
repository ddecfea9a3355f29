"""The tasks of an epoch: cut, shuffled and stored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

from fleet_config.errors import UserError
from fleet_config.modes import GeoMode
from fleet_config.section import AUTO
from fleetps.coordinator.base import Base
from fleetps.coordinator.lifecycle import Lifecycle
from fleetps.coordinator.schema import NewTask
from fleetps.coordinator.task_queue import SLICES
from fleetps.coordinator.tasks import Part, auto_task_rows, cut_groups, cut_tasks

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
        if self._job.mode_of(epoch).name == "sync":
            self._store.add_tasks(self._in_groups(epoch, rows_before))
        else:
            shuffle = self._job.data.shuffle
            self._store.add_tasks(self._for_anybody(epoch, TRAIN_SPLIT, shuffle, training=True))

    def make_evaluation(self, epoch: int) -> None:
        split = self._job.evaluate.split
        self._store.add_tasks(self._for_anybody(epoch, split, False, training=False))

    def _for_anybody(
        self, epoch: int, split: str, shuffle: bool, *, training: bool
    ) -> Iterator[NewTask]:
        tasks = cut_tasks(self._shards(split), self._task_rows(split), self._threads)
        order = self._order(epoch)
        seeds = [order.getrandbits(_SEED_BITS) if shuffle else None for _ in tasks]
        if shuffle:
            order.shuffle(tasks)
        for position, (slices, seed) in enumerate(zip(tasks, seeds, strict=True)):
            part = Part(slices, 0)
            yield self._task(epoch, split, position, part, training=training, seed=seed)

    def _in_groups(self, epoch: int, rows_before: int) -> Iterator[NewTask]:
        """Every worker goes through the groups in the same order."""
        groups = cut_groups(
            self._shards(TRAIN_SPLIT),
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
            slices=SLICES.dump_json(part.slices).decode(),
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

    def _shards(self, split: str) -> list[tuple[str, int]]:
        shards = self._dataset.split(split).shards
        return [(str(self._dataset.shard_path(shard)), shard.rows) for shard in shards]

    def _task_rows(self, split: str) -> int:
        mode = self._job.mode_of(0)
        if split == TRAIN_SPLIT and isinstance(mode, GeoMode):
            return mode.steps * self._job.data.batch_size  # exchanges are between tasks
        size = self._job.data.task_rows
        if size == AUTO:
            return auto_task_rows(self._dataset.split(split).rows, self._workers)
        return size
