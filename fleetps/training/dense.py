"""Who updates the dense parameters: the workers do, the servers only add.

The servers' own dense optimizer is wrong (Adam's bias correction ten times per push, no schedule,
no clipping, no decay, only SGD and Adam). So a worker runs the optimizer itself, per step and
thread::

    old = parameter             # once: the background pull may overwrite it at any moment
    new = optimizer(old, gradient of the mean loss)
    parameter = new             # so that the next step sees it, whether a pull has come or not

async: the server's rule is SGD with learning rate 1, and the worker sends `old - new`. Deltas of
many steps or workers may be merged on their way, since a sum of deltas is a delta.

sync: the gradients of all workers are summed before the optimizer runs, so every worker makes the
same step and nothing is sent; at the end of an epoch worker 0 gives the servers its values.

`old` and `new` belong to one thread. The optimizer's state (moments) belongs to the worker: its
threads share it, and both modes use the same variables, so a job may go from one to the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.base import framework

from fleet_config.optimizers import Adagrad, Adam, AdamW, Momentum, Optimizer
from fleetps import paddle_compat, paddle_graph
from fleetps.training import group

Tensor = Any
ACCUMULATED = "accumulated"
ACCUMULATED_BATCHES = f"{ACCUMULATED}.batches"  # variable, float32 [1]
_GRADIENT_NORM = "gradient.norm"  # variable, float32 [1]
Pairs = Sequence[tuple[Tensor, Tensor]]  # (parameter, gradient)


@dataclass(frozen=True)
class Gradients:
    """Of a batch, after backward.

    Attributes:
        names: dense parameters; the gradient of `w` is the variable `w@GRAD`.
        to_mean: times a gradient gives that of the mean loss; float32 [1], None = it is that.
        to_sum: times a gradient gives that of the summed loss; float32 [1], None = it is that.
        rows: that count in the batch (padding doesn't); float32 [1].
    """

    names: Sequence[str]
    to_mean: Tensor | None
    to_sum: Tensor | None
    rows: Tensor


@dataclass(frozen=True)
class Way:
    """How an update goes out.

    Attributes:
        workers: whose gradients are summed before it; 1 = only this worker's.
        sends: the `send` operators that Paddle's `minimize` with SGD(1.0) made, to carry the
            deltas; none in `sync`.
        in_place: nobody else writes the parameters, so that they need no copies.
    """

    workers: int = 1
    sends: Sequence[paddle_compat.Operator] = ()
    in_place: bool = False


@dataclass(frozen=True)
class Updated:
    """Names of the variables that an optimizer made: its learning rate, and its state."""

    learning_rate: str
    state: list[str]


def make_optimizer(settings: Optimizer) -> Any:
    """The Paddle optimizer of the job file; its rate is a variable that the step hook sets."""
    clip = (
        None if settings.clip_norm is None else paddle.nn.ClipGradByGlobalNorm(settings.clip_norm)
    )
    common = {
        "learning_rate": settings.learning_rate,
        "grad_clip": clip,
        "weight_decay": settings.weight_decay or None,
    }
    if isinstance(settings, AdamW):
        return paddle.optimizer.AdamW(
            **{**common, "weight_decay": settings.weight_decay},
            beta1=settings.beta1,
            beta2=settings.beta2,
            epsilon=settings.epsilon,
        )
    if isinstance(settings, Adam):
        return paddle.optimizer.Adam(
            **common, beta1=settings.beta1, beta2=settings.beta2, epsilon=settings.epsilon
        )
    if isinstance(settings, Momentum):
        return paddle.optimizer.Momentum(**common, momentum=settings.momentum)
    if isinstance(settings, Adagrad):
        return paddle.optimizer.Adagrad(**common, epsilon=settings.epsilon)
    return paddle.optimizer.SGD(**common)


def update_in_place(settings: Optimizer, pairs: Pairs) -> Updated:
    """Append the optimizer for (parameter, gradient of the mean loss) pairs."""
    optimizer = make_optimizer(settings)
    optimizer.apply_gradients(list(pairs))
    state = [
        variable.name
        for of_parameter in optimizer._accumulators.values()
        for variable in of_parameter.values()
    ]
    return Updated(str(optimizer._global_learning_rate().name), sorted(state))


def update(settings: Optimizer, gradients: Gradients, way: Way) -> Updated:
    """Append a batch's gradients -> new parameters, every `settings.accumulate` batches."""
    block = paddle.static.default_main_program().global_block()
    found = [block.var(f"{name}@GRAD") for name in gradients.names]
    if settings.accumulate == 1 and way.workers == 1:
        return _step(settings, gradients.names, _times(found, gradients.to_mean), way)
    sums = [*_times(found, gradients.to_sum), gradients.rows]
    if settings.accumulate == 1:
        return _update_with(settings, gradients.names, sums, way)
    kept, count = _accumulated(gradients.names)
    for sum_, value in zip([*kept, count], [*sums, paddle.ones([1])], strict=True):
        paddle.assign(sum_ + value, sum_)
    updated: list[Updated] = []

    def when_due() -> None:
        updated.append(_update_with(settings, gradients.names, kept, way))
        _clear([*kept, count])

    paddle_compat.append_on_condition(count >= float(settings.accumulate), when_due)
    return updated[0]


def _times(gradients: list[Tensor], factor: Tensor | None) -> list[Tensor]:
    return gradients if factor is None else [gradient * factor for gradient in gradients]


def settle(settings: Optimizer, names: Sequence[str], way: Way) -> None:
    """Append an update with what was accumulated so far."""
    sums, count = _accumulated(names)
    _update_with(settings, names, sums, way)
    _clear([*sums, count])


def keep_norm(gradients: Gradients) -> None:
    """Append what keeps the L2 norm of a batch's gradient of the mean loss, over all parameters."""
    block = paddle.static.default_main_program().global_block()
    squares = []
    for name in gradients.names:
        squares.append(block.create_var(name=f"{name}.square", shape=[1], dtype="float32"))
        gradient = block.var(f"{name}@GRAD")
        block.append_op(
            type="squared_l2_norm", inputs={"X": gradient}, outputs={"Out": squares[-1]}
        )
    norm = paddle.reshape(paddle.sqrt(paddle.add_n(squares)), [1])
    paddle.assign(*_times([norm], gradients.to_mean), _kept(_GRADIENT_NORM, [1]))


def last_norm() -> float | None:
    """Of the last batch; None where it isn't kept, or is no number."""
    variable = paddle.static.global_scope().find_var(_GRADIENT_NORM)
    if variable is None:
        return None
    norm = float(np.array(variable.get_tensor())[0])
    return norm if math.isfinite(norm) else None


def batches_accumulated() -> int:
    """How many batches wait for an update."""
    tensor = paddle.static.global_scope().find_var(ACCUMULATED_BATCHES).get_tensor()
    return int(np.array(tensor)[0])


def _update_with(
    settings: Optimizer, names: Sequence[str], sums: Sequence[Tensor], way: Way
) -> Updated:
    """`sums`: of the gradients, then of the rows."""
    *totals, rows = group.all_reduce(sums, way.workers)
    return _step(settings, names, [total / rows for total in totals], way)


def _accumulated(names: Sequence[str]) -> tuple[list[Tensor], Tensor]:
    """The sums so far of gradients and rows, and of how many batches they are."""
    block = paddle.static.default_main_program().global_block()
    shapes = [block.var(name).shape for name in names]
    sums = [_kept(f"{ACCUMULATED}.{index}", shape) for index, shape in enumerate([*shapes, [1]])]
    return sums, _kept(ACCUMULATED_BATCHES, [1])


def _kept(name: str, shape: Sequence[int]) -> Tensor:
    """A variable that lives across batches, zeros at first."""
    return paddle.static.create_global_var(shape, 0.0, "float32", persistable=True, name=name)


def _clear(variables: Sequence[Tensor]) -> None:
    for variable in variables:
        paddle.assign(paddle.zeros_like(variable), variable)


def _step(settings: Optimizer, names: Sequence[str], means: Sequence[Tensor], way: Way) -> Updated:
    """old -> new by the optimizer; what is sent are the deltas, in the gradients' place."""
    program = paddle.static.default_main_program()
    whole, block = program.global_block(), program.current_block()
    if way.in_place:
        return update_in_place(settings, list(zip(map(whole.var, names), means, strict=True)))
    olds, news = [], []
    for name in names:
        parameter = whole.var(name)
        olds.append(
            whole.create_var(name=f"{name}.old", shape=parameter.shape, dtype=parameter.dtype)
        )
        news.append(
            framework.Parameter(whole, parameter.shape, parameter.dtype, name=f"{name}.new")
        )
        block.append_op(type="assign", inputs={"X": parameter}, outputs={"Out": olds[-1]})
    start = len(block.ops)
    updated = update_in_place(settings, list(zip(news, means, strict=True)))
    paddle_graph.read_instead(
        block.ops[start:], {n.name: o.name for n, o in zip(news, olds, strict=True)}
    )
    for name, old, new in zip(names, olds, news, strict=True):
        paddle_compat.make_temporary(new)  # only now: the optimizer takes nothing but parameters
        block.append_op(type="assign", inputs={"X": new}, outputs={"Out": whole.var(name)})
        if way.sends:
            delta = whole.var(f"{name}@GRAD")
            block.append_op(
                type="elementwise_sub", inputs={"X": old, "Y": new}, outputs={"Out": delta}
            )
    paddle_compat.append_ops(program, way.sends)
    return updated
