"""What a report about a task leads to, and how a task is named for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import TypeAdapter

from fleetps.coordinator.messages import Evaluation, Slice
from fleetps.coordinator.schema import TaskRow
from fleetps.coordinator.tasks import where

SLICES = TypeAdapter(tuple[Slice, ...])


def slices_text(slices: Iterable[Slice]) -> str:
    """As the store keeps them."""
    return SLICES.dump_json(tuple(slices), exclude_defaults=True).decode()


@dataclass(frozen=True)
class Verdict:
    """What became of a report. `poison`: why the task, and with it the job, is given up."""

    accepted: bool
    note: str = ""
    poison: str = ""
    again: bool = False  # it may go well in another generation


@dataclass(frozen=True)
class Step:
    """By how much a report got further than the one before it."""

    rows: int
    loss_sum: float
    training: bool


def fault_of(row: TaskRow, rows: int, evaluation: Evaluation | None) -> str:
    """What is wrong with a report of the end of a task, or nothing."""
    if rows != row.rows:
        return f"{rows} rows came through instead of {row.rows}"
    if row.training:
        return ""
    if evaluation is None:
        return "the evaluation came without its scores"
    counted = sum(negatives + positives for negatives, positives in evaluation.bins.values())
    if not rows == evaluation.rows == counted:
        return f"{counted} scores were counted instead of {row.rows}"
    return ""


def where_is(row: TaskRow) -> str:
    return where(SLICES.validate_json(row.slices))
