"""Whether a checkpoint fits a job: one sentence with the first field that differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleetps.checkpoint.format import DataRecord, Manifest, column_records, held_as
from fleetps.data.dataset import Column, Dataset
from fleetps.memory import worker_rows

# What may change when a job goes on: how much longer, how fast, who is asked to do it.
_MAY_CHANGE = (
    "job.name",
    "job.epochs",
    "job.output",
    "cluster.",
    "data.path",  # the data themselves count
    "data.synthetic",
    "optimizer.",
    "tables.",
    "evaluate.",
)
# ... but for these, without which the weights or their state mean something else.
_MUST_STAY = ("optimizer.name", "optimizer.accumulate")

Difference = tuple[str, Any, Any]  # key, in the checkpoint, in the job


def check_weights(path: Path, manifest: Manifest, job: Job, columns: Sequence[Column]) -> None:
    """Refuse a checkpoint whose weights are not those of the job's network and tables.

    Other numbers of servers, workers and shards are fine.

    Raises:
        UserError: naming the first field that differs.
    """
    for key, saved, wanted in _weights(manifest, job, columns):
        raise UserError(
            f"{path}: doesn't fit the job: {key} is {_shown(saved)} there and {_shown(wanted)} "
            "here; change it back, or begin without it (checkpoint.resume: never, and no "
            "checkpoint.warm_start)"
        )


def check_resume(path: Path, manifest: Manifest, job: Job, columns: Sequence[Column]) -> None:
    """Refuse a checkpoint from which the job can't go on where it was.

    Raises:
        UserError: as `check_weights`, or a setting that decides on the order of training differs.
    """
    check_weights(path, manifest, job, columns)
    for key, saved, wanted in _order(manifest, job):
        raise UserError(
            f"{path}: is of another job: {key} is {_shown(saved)} there and {_shown(wanted)} here; "
            "change it back, or begin anew with its weights (checkpoint.resume: never and "
            "checkpoint.warm_start) or without (checkpoint.resume: never)"
        )


def check_data(path: Path, manifest: Manifest, data: DataRecord) -> None:
    """Refuse to go on with other data than those of which the checkpoint says what is done."""
    if manifest.data.digest != data.digest:
        raise UserError(
            f"{path}: was made with other data ({manifest.data.rows:,} training rows in "
            f"{manifest.data.path}) than those in {data.path} ({data.rows:,} rows); to train its "
            "weights on new data use checkpoint.resume: never and checkpoint.warm_start"
        )


def check_vocabulary(path: Path, manifest: Manifest, job: Job, dataset: Dataset) -> None:
    """Refuse weights whose ids are taken modulo another number; in mode geo it follows from data.

    Raises:
        UserError: naming both numbers.
    """
    wanted = worker_rows(job, dataset.distinct_ids)
    if manifest.vocabulary != wanted:
        raise UserError(
            f"{path}: doesn't fit the job: the vocabulary is {manifest.vocabulary} there and "
            f"{wanted} here; set mode: {{name: geo, vocabulary: {manifest.vocabulary}}}"
        )


def _weights(manifest: Manifest, job: Job, columns: Sequence[Column]) -> Iterator[Difference]:
    saved = manifest.job.agreement
    wanted = job.agreement()
    for key in _keys(saved, wanted, "model."):
        yield key, saved.get(key), wanted.get(key)
    if manifest.tables.keys() != job.tables.keys():
        yield "tables", sorted(manifest.tables), sorted(job.tables)
    for name, record in manifest.tables.items():
        table = job.tables[name]
        if record.dim != table.dim:
            yield f"tables.{name}.dim", record.dim, table.dim
        if record.rule["name"] != table.rule.name:
            yield f"tables.{name}.rule.name", record.rule["name"], table.rule.name
        if record.held_as != held_as(job, name):
            yield "mode", _mode(saved), _mode(wanted)
    yield from _columns(manifest, columns)


def _mode(agreement: dict[str, Any]) -> Any:
    """A name, or the stages of a schedule."""
    return agreement.get("mode.name", agreement.get("mode"))


def _columns(manifest: Manifest, columns: Sequence[Column]) -> Iterator[Difference]:
    here = column_records(columns)
    names = [column.name for column in manifest.columns]
    names_here = [column.name for column in here]
    if names != names_here:
        yield "the list of the data's columns", names, names_here
    for saved, wanted in zip(manifest.columns, here, strict=True):
        for field, value in saved:
            if value != getattr(wanted, field):
                yield f"{field} of the data's column {saved.name}", value, getattr(wanted, field)


def _order(manifest: Manifest, job: Job) -> Iterator[Difference]:
    saved, wanted = manifest.job.agreement, job.agreement()
    for key in _keys(saved, wanted, ""):
        if key in _MUST_STAY or not key.startswith(_MAY_CHANGE):
            yield key, saved.get(key), wanted.get(key)


def _keys(saved: dict[str, Any], wanted: dict[str, Any], prefix: str) -> Iterator[str]:
    """Those that differ, in the order of the job file."""
    for key in {**saved, **wanted}:
        if key.startswith(prefix) and saved.get(key) != wanted.get(key):
            yield key


def _shown(value: Any) -> str:
    return "missing" if value is None else str(value)
