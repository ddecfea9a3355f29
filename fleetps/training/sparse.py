"""Sparse tables on the servers: how they are looked up, described and shrunk (docs/tables.md)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import paddle

from fleet_config.job import Job
from fleet_config.tables import (
    AdagradRule,
    AdamRule,
    Eviction,
    NaiveRule,
    Rule,
    SharedAdamRule,
    StdAdagradRule,
    Table,
)
from fleetps import paddle_compat
from fleetps.data.dataset import Column
from fleetps.training import distinct
from fleetps.training.program import batch_rows, feed_name

Tensor = Any

_RULE_NAMES = {
    NaiveRule: "SparseNaiveSGDRule",
    AdagradRule: "SparseAdaGradSGDRule",
    StdAdagradRule: "StdAdaGradSGDRule",
    AdamRule: "SparseAdamSGDRule",
    SharedAdamRule: "SparseSharedAdamSGDRule",
}
_NEVER = 1e9  # in shrinks
# Scores are sums of float32 products: one that is a hair under the threshold has reached it.
_HAIR = 1e-6


class ServerTables:
    """Lookup (see `program.Lookup`) of the tables on servers, with shows and clicks counted.

    Each id of a batch crosses the network once: the distinct ids are pulled, and what is pushed for
    one is the sum over its occurrences. Each occurrence is a show, and a click if the example was
    one; a push tells the server how many they were.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._widths = [column.width for column in columns if column.kind == "sparse"]
        self._label = next(feed_name(column) for column in columns if column.kind == "label")

    def lookup(self, table: str, dim: int, ids: list[Tensor]) -> list[Tensor]:
        """Paddle's passes turn it into one pull and one push per table and batch."""
        if "_batch" not in vars(self):
            self._batch = distinct.of_batch(
                ids, self._widths, self._label
            )  # the same for all tables
        # The first size is a formality: rows are made when an id is pushed for the first time.
        rows = paddle.static.nn.sparse_embedding(
            self._batch.keys,
            size=[1 << 20, dim],
            entry=self._entry,
            param_attr=paddle.ParamAttr(name=table),
        )
        return distinct.spread(rows, self._batch.places, ids)

    @functools.cached_property
    def _entry(self) -> Any:
        """Tells Paddle's passes which variables have the shows and clicks."""
        return paddle.distributed.ShowClickEntry(self._batch.shows.name, self._batch.clicks.name)

    def scale(self) -> Tensor:
        """What the engine multiplies gradients with before it pushes them; float32 [1].

        It takes the first dimension of the ids that it looked up for the size of the batch.
        """
        return batch_rows(self._batch.keys)


def shrink(job: Job, epoch: int) -> None:
    """Evict rows of the tables for which it is due after this epoch (from 0).

    One worker calls it, while nobody pushes.
    """
    ids = paddle_compat.sparse_tables()
    for name, table in job.tables.items():
        if table.eviction is None or (epoch + 1) % table.eviction.every_epochs:
            continue
        paddle_compat.shrink_table(ids[name])
        if table.eviction.unseen_epochs is not None:
            paddle_compat.age_table(ids[name])


def complete_description(job: Job, message: Any) -> None:
    """Set every field of the job's tables in Paddle's PSParameter message.

    `SparseAccessor` keeps [first value | the other values] per row, each part with the state of its
    rule.
    """
    for table in message.server_param.downpour_server_param.downpour_table_param:
        _complete(job, table)
    for table in message.worker_param.downpour_worker_param.downpour_table_param:
        _complete(job, table)


def _complete(job: Job, message: Any) -> None:
    name = message.common.table_name
    if name not in job.tables:
        return
    table = job.tables[name]
    message.table_class = "MemorySparseTable"
    message.shard_num = job.table_shards(name)
    accessor = message.accessor
    accessor.accessor_class = "SparseAccessor"
    accessor.fea_dim = table.dim + 2
    accessor.embedx_dim = table.dim - 1
    _set_statistics(accessor, table)
    for part in (accessor.embed_sgd_param, accessor.embedx_sgd_param):
        _set_rule(part, table.rule)


def _set_statistics(accessor: Any, table: Table) -> None:
    """Admission, eviction and delta saves; all of them compare a row's score with something."""
    wanted = table.admission.threshold
    # The engine's threshold is an integer, so where the job's isn't the score has another unit.
    unit = wanted if wanted % 1 else 1.0
    accessor.embedx_threshold = round(wanted / unit)
    values = accessor.ctr_accessor_param
    values.nonclk_coeff = table.admission.show_weight / unit * (1 + _HAIR)
    values.click_coeff = table.admission.click_weight / unit * (1 + _HAIR)
    values.base_threshold = 0.0
    values.delta_threshold = table.delta_threshold / unit
    values.delta_keep_days = _NEVER
    eviction = table.eviction or Eviction(decay=1.0)
    values.show_click_decay_rate = eviction.decay
    values.delete_threshold = eviction.below / unit
    unseen = eviction.unseen_epochs
    values.delete_after_unseen_days = _NEVER if unseen is None else unseen / eviction.every_epochs
    paddle_compat.prepare_aging(accessor)


def _set_rule(part: Any, rule: Rule) -> None:
    part.Clear()
    part.name = _RULE_NAMES[type(rule)]
    match rule:
        case NaiveRule():
            values = part.naive
        case AdagradRule() | StdAdagradRule():
            values = part.adagrad
            values.initial_g2sum = rule.initial_g2sum
        case AdamRule() | SharedAdamRule():
            values = part.adam
            values.beta1_decay_rate = rule.beta1
            values.beta2_decay_rate = rule.beta2
            values.ada_epsilon = rule.epsilon
    values.learning_rate = rule.learning_rate
    values.initial_range = rule.initial_range
    values.weight_bounds[:] = rule.bounds
