"""Mode `sync` with `strict: true`: N workers make the step that one would make on all their rows.

Nobody may push before all have pulled, nor pull again before every push has arrived, so there is a
barrier before the pushes, and a flush and a barrier behind them. A step takes 0.1 s and more: the
engine's flush sleeps that long at least.

A row of an id seen for the first time is the one place where the order of pushes would matter. The
engine makes the factors (all values but the first) when the first push arrives, and drops that
push's gradient for them; a second worker's push in the same step would be applied. So for rows that
were not there when they were pulled, no worker pushes a gradient of the factors.
"""

from __future__ import annotations

from typing import Any

import paddle

from fleetps import paddle_compat
from fleetps.training import group
from fleetps.training.program import Lookup

Tensor = Any


def without_first_gradients(lookup: Lookup) -> Lookup:
    """A lookup whose factors get no gradient where the row is not there yet."""

    def wrapped(table: str, dim: int, ids: list[Tensor]) -> list[Tensor]:
        return [_masked(rows) for rows in lookup(table, dim, ids)]

    return wrapped


def _masked(rows: Tensor) -> Tensor:
    """A row that isn't there is pulled as zeros."""
    there = paddle.cast(paddle.any(rows != 0.0, axis=1, keepdim=True), "float32")
    there.stop_gradient = True
    return paddle.concat([rows[:, :1], rows[:, 1:] * there], axis=1)


def append_step_end(program: Any, workers: int) -> None:
    """Let nobody push before all have pulled, and nobody pull before all pushes have arrived.

    Call inside `program_guard(program)`, at the end of the training program.
    """
    if workers > 1:
        paddle_compat.insert_barrier(program, "distributed_push_sparse")
    token = paddle.ones([1])
    paddle_compat.call_after_batch(_flush, token, token)
    group.all_reduce([token], workers)


def _flush(_first: Tensor, _second: Tensor) -> None:
    paddle_compat.flush()
