"""Builds the static programs of a job: the same network for server, worker and local.

Gradients: a sparse row gets that of the *summed* log loss, the sum over its examples, whatever the
batch size and the number of workers; dense parameters get that of the *mean* loss of the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import paddle

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleetps import models
from fleetps.data.dataset import Column, Dataset
from fleetps.training.padding import PADDING_LABEL

Tensor = Any
# (table name, row width, ids [n, 1] int64 with or without lod) -> rows [n, width]
Lookup = Callable[[str, int, list[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class Network:
    """Variables of the forward pass.

    label [batch, 1] int64, logit [batch, 1] float32, loss_sum [] float32; rows [1] float32: those
    that count, which padding doesn't.
    """

    program: Any
    feeds: list[Tensor]
    label: Tensor
    logit: Tensor
    loss_sum: Tensor
    rows: Tensor
    batch: Tensor


def build_network(job: Job, dataset: Dataset, lookup: Lookup) -> Network:
    """Append the forward pass of the job's model to the default main program.

    Raises:
        UserError: the data set has no label column or no sparse one, or the model doesn't fit the
        job file.
    """
    feeds = feeds_of(dataset)
    labels = [column for column in dataset.columns if column.kind == "label"]
    if len(labels) != 1:
        raise UserError(
            f"{dataset.path}: a data set needs exactly one label column, it has {len(labels)}"
        )
    label = feeds[labels[0].name]
    dense = [feeds[column.name] for column in dataset.columns if column.kind == "dense"]
    sparse = [column for column in dataset.columns if column.kind == "sparse"]
    if not sparse:
        raise UserError(
            f"{dataset.path}: has no sparse column, so there is nothing for servers to hold"
        )

    used: set[str] = set()

    @functools.cache
    def rows_of_all_slots(table: str) -> Tensor:
        used.add(table)
        dim = job.tables[table].dim
        rows = lookup(table, dim, flat_ids(feeds, dataset))
        return _concat(
            [_per_example(row, column, dim) for row, column in zip(rows, sparse, strict=True)]
        )

    inputs = models.Inputs(
        dense=_concat(dense) if dense else None,
        lookup=rows_of_all_slots,
        dims={name: table.dim for name, table in job.tables.items()},
    )
    params = models.parse_params(job.model.name, job.model.params)
    logit = models.get(job.model.name).build(inputs, params)
    _check_model(job, logit, used)
    batch = batch_rows(label)
    weight, rows = _weight(job, label, batch)
    loss = paddle.nn.functional.binary_cross_entropy_with_logits(
        logit, paddle.cast(label, "float32"), weight, reduction="sum"
    )
    program = paddle.static.default_main_program()
    return Network(program, list(feeds.values()), label, logit, loss, rows, batch)


def _weight(job: Job, label: Tensor, batch: Tensor) -> tuple[Tensor | None, Tensor]:
    """Weight of each row, 0 for padding (None = 1 for all, as only `sync` pads); their sum [1]."""
    if "sync" not in job.mode_names:
        return None, batch
    weight = paddle.cast(label < PADDING_LABEL, "float32")
    return weight, paddle.reshape(paddle.sum(weight), [1])


def _check_model(job: Job, logit: Tensor, used: set[str]) -> None:
    """What Paddle would refuse in words of its own, or not at all."""
    model = f"the model {job.model.name}"
    for name in sorted(job.tables.keys() - used):
        raise UserError(f"{model} doesn't use tables.{name}: remove it")
    if tuple(logit.shape[1:]) != (1,):
        raise UserError(f"{model} must return logits of shape [batch, 1], not {list(logit.shape)}")
    for parameter in paddle.static.default_main_program().all_parameters():
        if not parameter.trainable:
            raise UserError(
                f"{model} has a parameter that isn't trained, {parameter.name}, and no two workers "
                "would have the same; batch normalisation is one such case"
            )


def feed_name(column: Column) -> str:
    """Name of a column's variable; bare "show" would collide with one that Paddle makes."""
    return f"column.{column.name}"


def feeds_of(dataset: Dataset) -> dict[str, Tensor]:
    """A variable to read for each column of the data set, in order."""
    return {column.name: _feed(column) for column in dataset.columns}


def _feed(column: Column) -> Tensor:
    """Single-valued slots come as one tensor: fewer operators, 10-20 % faster than one each."""
    name = feed_name(column)
    if column.kind == "dense":
        return paddle.static.data(name, [-1, column.width], "float32")
    if column.kind == "label":
        return paddle.static.data(name, [-1, 1], "int64")
    if column.width is None:
        return paddle.static.data(name, [-1, 1], "int64", lod_level=1)
    return paddle.static.data(name, [-1, column.width, 1], "int64")


def flat_ids(feeds: dict[str, Tensor], dataset: Dataset) -> list[Tensor]:
    """The ids of each sparse column: [n, 1] int64."""
    return [
        feeds[column.name] if column.width is None else paddle.reshape(feeds[column.name], [-1, 1])
        for column in dataset.columns
        if column.kind == "sparse"
    ]


def _per_example(rows: Tensor, column: Column, dim: int) -> Tensor:
    """[n, dim] -> [batch, slots, dim]; several ids of one slot are summed."""
    if column.width is None:
        rows = paddle.static.nn.sequence_lod.sequence_pool(rows, "sum")
    return paddle.reshape(rows, [-1, column.width or 1, dim])


def _concat(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else paddle.concat(tensors, axis=1)


def batch_rows(label: Tensor) -> Tensor:
    """Number of rows in the batch, padding too, as float32 [1]."""
    return paddle.cast(paddle.shape(label)[0:1], "float32")
