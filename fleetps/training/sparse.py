"""Sparse tables on the servers: how they are looked up and described."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from fleet_config.job import Job
from fleet_config.tables import AdagradRule, AdamRule, NaiveRule, Table
from fleetps.data.dataset import Column

Tensor = Any

_RULE_NAMES = {
    NaiveRule: "SparseNaiveSGDRule",
    AdagradRule: "SparseAdaGradSGDRule",
    AdamRule: "SparseAdamSGDRule",
}


def lookup_on_servers(table: str, dim: int, ids: list[Tensor]) -> list[Tensor]:
    """Rows of a distributed table; Paddle's passes turn it into one pull and one push per batch."""
    # The first size is a formality: rows are made when an id is pushed for the first time.
    return [
        paddle.static.nn.sparse_embedding(
            part, size=[1 << 20, dim], param_attr=paddle.ParamAttr(name=table)
        )
        for part in ids
    ]


def scale_per_row(columns: Sequence[Column]) -> int | None:
    """What the engine multiplies sparse gradients with before it pushes them, per row of the batch.

    It multiplies them by "the batch size": the first dimension of the ids it looked up (here rows *
    slots, as the slots of a column are looked up as one tensor), or the rows for a column with
    several ids per row. When the columns disagree it doesn't multiply at all, which is None here.
    """
    factors = {column.width or 1 for column in columns if column.kind == "sparse"}
    return factors.pop() if len(factors) == 1 else None


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
    accessor.embedx_threshold = 0
    for part in (accessor.embed_sgd_param, accessor.embedx_sgd_param):
        _set_rule(part, table)


def _set_rule(part: Any, table: Table) -> None:
    rule = table.rule
    part.Clear()
    part.name = _RULE_NAMES[type(rule)]
    values = getattr(part, rule.name)
    values.learning_rate = rule.learning_rate
    values.initial_range = rule.initial_range
    values.weight_bounds[:] = rule.bounds
    if isinstance(rule, AdagradRule):
        values.initial_g2sum = rule.initial_g2sum
    if isinstance(rule, AdamRule):
        values.beta1_decay_rate = rule.beta1
        values.beta2_decay_rate = rule.beta2
        values.ada_epsilon = rule.epsilon
