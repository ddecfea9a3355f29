"""Sparse tables of the `local` role: the servers' rules as ordinary operators in one process.

An independent route to the same mathematics, which makes it the baseline of the parity tests. Ids
are taken modulo a capacity, see `fleet_config.tables.local_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import paddle

from fleet_config.tables import AdagradRule, AdamRule, Table, state_width

Tensor = Any


@dataclass(frozen=True)
class _Pulled:
    table: Table
    values: Tensor  # [capacity, dim]
    state: Tensor | None  # [capacity, width of the rule's state]
    keys: Tensor  # [unique ids of the batch]
    counts: Tensor  # [unique ids, 1] occurrences in the batch
    rows: Tensor  # [unique ids, dim]


class LocalTables:
    """Lookup (see `program.Lookup`) and update of all tables of one program."""

    def __init__(self, tables: dict[str, Table], rows: int) -> None:
        self._tables = tables
        self._capacity = rows
        self._pulled: list[_Pulled] = []

    def lookup(self, name: str, dim: int, ids: list[Tensor]) -> list[Tensor]:
        """Rows for ids; one `unique` over all slots, so that an id's gradients meet in one row."""
        table = self._tables[name]
        values = _persistable(name, [self._capacity, dim], table.rule.initial_range)
        width = state_width(table)
        state = _persistable(f"{name}.state", [self._capacity, width], 0.0) if width else None
        flat = paddle.reshape(ids[0] if len(ids) == 1 else paddle.concat(ids, axis=0), [-1])
        keys, places, counts = paddle.unique(
            flat % self._capacity, return_inverse=True, return_counts=True
        )
        rows = paddle.gather(values, keys)
        rows.stop_gradient = False
        counts = paddle.reshape(paddle.cast(counts, "float32"), [-1, 1])
        self._pulled.append(_Pulled(table, values, state, keys, counts, rows))
        taken = paddle.gather(rows, places)
        return self._split(taken, ids)

    def _split(self, rows: Tensor, ids: list[Tensor]) -> list[Tensor]:
        if len(ids) == 1:
            return [rows]
        parts, start = [], paddle.zeros([1], "int32")
        for part in ids:
            end = start + paddle.shape(part)[0:1]
            piece = paddle.slice(rows, axes=[0], starts=[start], ends=[end])
            parts.append(_with_lod_of(part, piece) if part.lod_level else piece)
            start = end
        return parts

    @property
    def rows(self) -> list[Tensor]:
        """What gradients are needed of, in the order of the lookups."""
        return [pulled.rows for pulled in self._pulled]

    def update(self, gradients: list[Tensor]) -> None:
        """Append the rule of each table, for d(summed loss)/d(rows)."""
        for pulled, gradient in zip(self._pulled, gradients, strict=True):
            _update(pulled, gradient)


def _with_lod_of(ids: Tensor, rows: Tensor) -> Tensor:
    """The rows, grouped as the ids are; Paddle has the operator but no function for it."""
    block = paddle.static.default_main_program().global_block()
    name = paddle.utils.unique_name.generate("grouped")
    grouped = block.create_var(name=name, dtype="float32", lod_level=ids.lod_level)
    block.append_op(
        type="lod_reset", inputs={"X": rows, "Y": ids}, outputs={"Out": grouped}, attrs={}
    )
    return grouped


def _update(pulled: _Pulled, gradient: Tensor) -> None:
    rule = pulled.table.rule
    old = pulled.rows
    if isinstance(rule, AdagradRule):
        sums = paddle.gather(pulled.state, pulled.keys)
        gradient = gradient / pulled.counts
        scale = paddle.sqrt(rule.initial_g2sum / (rule.initial_g2sum + sums))
        first, rest = gradient[:, :1], gradient[:, 1:]
        step = paddle.concat([first * scale[:, :1], rest * scale[:, 1:]], axis=1)
        added = paddle.concat(
            [first * first, paddle.mean(rest * rest, axis=1, keepdim=True)], axis=1
        )
        _write(pulled.state, pulled.keys, sums + added)
        new = old - rule.learning_rate * step
    elif isinstance(rule, AdamRule):
        new = _adam(pulled, rule, old, gradient)
    else:
        new = old - rule.learning_rate * gradient
    _write(pulled.values, pulled.keys, paddle.clip(new, *rule.bounds))


def _adam(pulled: _Pulled, rule: AdamRule, old: Tensor, gradient: Tensor) -> Tensor:
    """State per row: m [dim], v [dim], 1 - beta1^t, 1 - beta2^t; zeros are the right start."""
    dim = pulled.table.dim
    state = paddle.gather(pulled.state, pulled.keys)
    m = rule.beta1 * state[:, :dim] + (1 - rule.beta1) * gradient
    v = rule.beta2 * state[:, dim : 2 * dim] + (1 - rule.beta2) * gradient * gradient
    seen1 = 1 - rule.beta1 * (1 - state[:, 2 * dim : 2 * dim + 1])
    seen2 = 1 - rule.beta2 * (1 - state[:, 2 * dim + 1 :])
    _write(pulled.state, pulled.keys, paddle.concat([m, v, seen1, seen2], axis=1))
    return old - rule.learning_rate * paddle.sqrt(seen2) / seen1 * m / (
        paddle.sqrt(v) + rule.epsilon
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
