"""The job's progress at this moment, as a checkpoint that is taken now will say it."""

from __future__ import annotations

from fleetps.coordinator.base import Base
from fleetps.coordinator.progress import Progress, merged
from fleetps.coordinator.reports import EpochResult
from fleetps.coordinator.saved import done_slices
from fleetps.coordinator.schema import JobRow
from fleetps.coordinator.skipped import skipped_slices
from fleetps.coordinator.splits import whole_and_open
from fleetps.coordinator.task_maker import TRAIN_SPLIT


def present_progress(base: Base, row: JobRow) -> Progress:
    """What is done, when no task is held."""
    split = base.dataset.split(TRAIN_SPLIT)
    files = {str(base.dataset.shard_path(shard)): shard.file for shard in split.shards}
    rows, loss_sum = base.store.train_sums(row.epoch)
    skipped = skipped_slices(base.store, row.epoch)
    # Of a slice that is done to some row, what is left out counts as done.
    parts = [piece for piece in skipped if piece.count < piece.rows]
    whole, begun = whole_and_open([*done_slices(base.store, row.epoch), *parts])
    progress = Progress(
        seed=base.job.job.seed,
        epoch=row.epoch,
        goes_on="evaluate" if row.goes_on == "evaluate" else "train",
        done=merged(whole),
        begun=tuple(begun),
        skipped=merged(piece for piece in skipped if piece not in parts),
        rows=row.epoch * split.rows + rows + sum(piece.count for piece in skipped),
        loss_sum=loss_sum,
        train_seconds=row.train_seconds,
        history=tuple(EpochResult.model_validate_json(text) for text in base.store.epochs()),
    )
    return progress.renamed(files)
