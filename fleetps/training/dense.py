"""Who updates the dense parameters: the workers do, the servers only add.

The servers' own dense optimizer is wrong (Adam's bias correction ten times per push, no schedule,
no clipping, no decay, only SGD and Adam). So the server's rule is SGD with learning rate 1, and a
worker sends what its own optimizer changed. Per step and thread::

    old = parameter             # once: the background pull may overwrite it at any moment
    new = old
    new = optimizer(new, gradient of the mean loss)
    parameter = new             # so that the next step sees it, whether a pull has come or not
    gradient = old - new        # the server subtracts it
    send(gradient)

Deltas of many steps or workers may be merged on their way, since a sum of deltas is a delta. `old`
and `new` belong to one thread; the moments are shared by the threads of a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddle.base import framework

from fleet_config.optimizers import Adagrad, Adam, AdamW, Momentum, Optimizer
from fleetps import paddle_compat

Tensor = Any


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


def update_in_place(
    settings: Optimizer, pairs: Sequence[tuple[Tensor, Tensor]], factor: Tensor | float
) -> str:
    """Append the optimizer for (parameter, gradient * factor) pairs.

    Returns:
        Name of the learning rate's variable.
    """
    optimizer = make_optimizer(settings)
    optimizer.apply_gradients([(parameter, gradient * factor) for parameter, gradient in pairs])
    return str(optimizer._global_learning_rate().name)


def send_deltas(
    settings: Optimizer, program: Any, names: Sequence[str], factor: Tensor | float
) -> str:
    """Replace what a worker sends: deltas of its own optimizer in place of gradients.

    Call inside `program_guard(program, startup)`, after Paddle's `minimize` with SGD(1.0).

    Args:
        names: dense parameters.
        factor: times each gradient gives the gradient of the mean loss.

    Returns:
        Name of the learning rate's variable.
    """
    block = program.global_block()
    sends = paddle_compat.remove_ops(program, ["send"])
    old = {
        name: block.create_var(name=f"{name}.old", shape=block.var(name).shape, dtype="float32")
        for name in names
    }
    new = {
        name: framework.Parameter(
            block, block.var(name).shape, block.var(name).dtype, name=f"{name}.new"
        )
        for name in names
    }
    for name in names:
        block.append_op(type="assign", inputs={"X": block.var(name)}, outputs={"Out": old[name]})
        block.append_op(type="assign", inputs={"X": old[name]}, outputs={"Out": new[name]})
    gradients = {name: block.var(f"{name}@GRAD") for name in names}
    rate = update_in_place(settings, [(new[name], gradients[name]) for name in names], factor)
    for name in names:
        # Not persistable = each thread has its own. Only now: the optimizer takes nothing but
        # parameters.
        new[name].persistable = False
        block.append_op(type="assign", inputs={"X": new[name]}, outputs={"Out": block.var(name)})
        block.append_op(
            type="elementwise_sub",
            inputs={"X": old[name], "Y": new[name]},
            outputs={"Out": gradients[name]},
        )
    for send in sends:
        block.append_op(type=send.type, inputs=send.inputs, outputs=send.outputs, attrs=send.attrs)
    return rate
