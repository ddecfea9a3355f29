"""Sparse tables of the `local` role: the servers' rules as ordinary operators in one process.

An independent route to the same mathematics, which makes it the baseline of every comparison. A
table is an array of fixed size (`fleet_config.tables.local_rows`): ids are taken modulo all of its
rows but the last, which stands for the padding id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import paddle

from fleet_config.errors import UserError
from fleet_config.tables import (
    AdagradRule,
    AdamRule,
    NaiveRule,
    SharedAdamRule,
    StdAdagradRule,
    Table,
    state_width,
)
from fleetps.training import distinct

Tensor = Any

PADDING_ID = -1  # its row is zeros and never changes, as on servers


@dataclass(frozen=True)
class _Pulled:
    table: Table
    values: Tensor  # [all rows, dim]
    state: Tensor | None  # [all rows, width of the rule's state]
    keys: Tensor  # [unique ids of the batch]
    counts: Tensor  # [unique ids, 1] occurrences in the batch
    rows: Tensor  # [unique ids, dim]


class LocalTables:
    """Lookup (see `program.Lookup`) and update of all tables of one program."""

    def __init__(self, tables: dict[str, Table], rows: int) -> None:
        for name, table in tables.items():
            _refuse_what_only_servers_do(name, table)
        self._tables = tables
        self._rows = rows
        self._pulled: list[_Pulled] = []

    def lookup(self, name: str, dim: int, ids: list[Tensor]) -> list[Tensor]:
        """Rows for ids; one `unique` over all slots, so that an id's gradients meet in one row."""
        table = self._tables[name]
        values = _persistable(name, [self._rows, dim], table.rule.initial_range)
        width = state_width(table)
        state = _persistable(f"{name}.state", [self._rows, width], 0.0) if width else None
        keys = row_numbers(ids, self._rows)
        keys, places, counts = paddle.unique(keys, return_inverse=True, return_counts=True)
        stored = paddle.reshape(paddle.cast(keys != self._rows - 1, "float32"), [-1, 1])
        rows = paddle.gather(values, keys) * stored
        rows.stop_gradient = False
        counts = paddle.reshape(paddle.cast(counts, "float32"), [-1, 1])
        self._pulled.append(_Pulled(table, values, state, keys, counts, rows))
        taken = paddle.gather(rows, places)
        return distinct.split(taken, ids)

    @property
    def state(self) -> list[str]:
        """Names of the variables with the rules' state."""
        return [pulled.state.name for pulled in self._pulled if pulled.state is not None]

    @property
    def rows(self) -> list[Tensor]:
        """What gradients are needed of, in the order of the lookups."""
        return [pulled.rows for pulled in self._pulled]

    def update(self, gradients: list[Tensor]) -> None:
        """Append the rule of each table, for d(summed loss)/d(rows)."""
        for pulled, gradient in zip(self._pulled, gradients, strict=True):
            _update(pulled, gradient)


def row_numbers(ids: list[Tensor], rows: int) -> Tensor:
    """The row of each id in a table of so many rows: [all ids] int64."""
    padding = rows - 1
    flat = paddle.reshape(ids[0] if len(ids) == 1 else paddle.concat(ids, axis=0), [-1])
    return paddle.where(flat == PADDING_ID, paddle.full([1], padding, "int64"), flat % padding)


def _update(pulled: _Pulled, gradient: Tensor) -> None:
    rule = pulled.table.rule
    match rule:
        case NaiveRule():
            step = gradient
        case AdagradRule() | StdAdagradRule():
            step = _adagrad_step(pulled, rule, gradient / pulled.counts)
        case AdamRule():
            step = _adam_step(pulled, rule, gradient)
        case SharedAdamRule():
            step = _shared_adam_step(pulled, rule, gradient)
    new = pulled.rows - rule.learning_rate * step
    _write(pulled.values, pulled.keys, paddle.clip(new, *rule.bounds))


def _adagrad_step(pulled: _Pulled, rule: AdagradRule | StdAdagradRule, gradient: Tensor) -> Tensor:
    """State per row: sum of squares of the first value and mean of those of the others, or a sum
    per value. A step is scaled by the sums before it.
    """
    sums = paddle.gather(pulled.state, pulled.keys)
    squares = gradient * gradient
    if isinstance(rule, AdagradRule):
        squares = _mean_by_part(squares)
    _write(pulled.state, pulled.keys, sums + squares)
    scale = paddle.sqrt(rule.initial_g2sum / (rule.initial_g2sum + sums))
    if isinstance(rule, AdagradRule):
        scale = _spread(scale, pulled.table.dim)
    return gradient * scale


def _adam_step(pulled: _Pulled, rule: AdamRule, gradient: Tensor) -> Tensor:
    """State per row: m [dim], v [dim], 1 - beta1^t, 1 - beta2^t; zeros are the right start."""
    dim = pulled.table.dim
    state = paddle.gather(pulled.state, pulled.keys)
    m = rule.beta1 * state[:, :dim] + (1 - rule.beta1) * gradient
    v = rule.beta2 * state[:, dim : 2 * dim] + (1 - rule.beta2) * gradient * gradient
    seen = _seen(rule, state[:, 2 * dim :])
    _write(pulled.state, pulled.keys, paddle.concat([m, v, *seen], axis=1))
    return _biased_step(rule, m, v, seen)


def _shared_adam_step(pulled: _Pulled, rule: SharedAdamRule, gradient: Tensor) -> Tensor:
    """State per row: m [2], v [2], 1 - beta1^t, 1 - beta2^t.

    The first value has an m and a v, all the others have another: the means of what Adam would
    have for each.
    """
    dim = pulled.table.dim
    state = paddle.gather(pulled.state, pulled.keys)
    m = rule.beta1 * _spread(state[:, :2], dim) + (1 - rule.beta1) * gradient
    v = rule.beta2 * _spread(state[:, 2:4], dim) + (1 - rule.beta2) * gradient * gradient
    seen = _seen(rule, state[:, 4:])
    shared = [_mean_by_part(m), _mean_by_part(v)]
    _write(pulled.state, pulled.keys, paddle.concat([*shared, *seen], axis=1))
    return _biased_step(rule, m, v, seen)


def _seen(rule: AdamRule | SharedAdamRule, state: Tensor) -> tuple[Tensor, Tensor]:
    """1 - beta^(t + 1) from 1 - beta^t, for both betas."""
    return 1 - rule.beta1 * (1 - state[:, :1]), 1 - rule.beta2 * (1 - state[:, 1:])


def _biased_step(
    rule: AdamRule | SharedAdamRule, m: Tensor, v: Tensor, seen: tuple[Tensor, Tensor]
) -> Tensor:
    """Epsilon is added to the root of the plain second moment, as in Kingma and Ba's section 2."""
    return paddle.sqrt(seen[1]) / seen[0] * m / (paddle.sqrt(v) + rule.epsilon)


def _mean_by_part(values: Tensor) -> Tensor:
    """[n, dim] -> [n, 2]: the first value, and the mean of the others."""
    return paddle.concat([values[:, :1], paddle.mean(values[:, 1:], axis=1, keepdim=True)], axis=1)


def _spread(parts: Tensor, dim: int) -> Tensor:
    """[n, 2] -> [n, dim]: the opposite."""
    return paddle.concat([parts[:, :1], paddle.expand(parts[:, 1:], [-1, dim - 1])], axis=1)


def _refuse_what_only_servers_do(name: str, table: Table) -> None:
    wanted = {"admission.threshold": table.admission.threshold, "eviction": table.eviction}
    for key, value in wanted.items():
        if value:
            off = "0" if key == "admission.threshold" else "null"
            raise UserError(
                f"tables.{name}.{key} needs servers, and this process trains alone: its tables "
                f"keep all rows; add --set tables.{name}.{key}={off} or start servers"
            )


def _persistable(name: str, shape: list[int], spread: float) -> Tensor:
    """A variable that lives across steps, uniform in [-spread, spread] at first."""
    main, startup = paddle.static.default_main_program(), paddle.static.default_startup_program()
    variable = main.global_block().create_var(
        name=name, shape=shape, dtype="float32", persistable=True
    )
    variable.stop_gradient = True
    start = startup.global_block().create_var(
        name=name, shape=shape, dtype="float32", persistable=True
    )
    paddle.nn.initializer.Uniform(-spread, spread)(start, startup.global_block())
    return variable


def _write(variable: Tensor, keys: Tensor, rows: Tensor) -> None:
    """variable[keys] = rows, in place."""
    paddle.static.default_main_program().global_block().append_op(
        type="scatter",
        inputs={"X": variable, "Ids": keys, "Updates": rows},
        outputs={"Out": variable},
        attrs={"overwrite": True},
    )
