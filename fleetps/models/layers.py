"""Layers that several models share."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from fleetps.models.base import Tensor


def linear(x: Tensor, size: int, name: str) -> Tensor:
    """x @ w + b with Xavier weights and zero bias: [batch, n] -> [batch, size]."""
    weight = paddle.static.create_parameter(
        [x.shape[1], size],
        "float32",
        f"{name}.w",
        default_initializer=paddle.nn.initializer.XavierUniform(),
    )
    bias = paddle.static.create_parameter(
        [1, size],
        "float32",
        f"{name}.b",
        default_initializer=paddle.nn.initializer.Constant(0.0),
    )
    # One operator; a broadcast add would sum the bias gradient in a scalar loop, 6 % of a step.
    return paddle.addmm(bias, x, weight)


def mlp(x: Tensor, hidden: Sequence[int], name: str = "mlp") -> Tensor:
    """Fully connected layers with ReLU: [batch, n] -> [batch, hidden[-1]]."""
    for index, size in enumerate(hidden):
        x = paddle.nn.functional.relu(linear(x, size, f"{name}.{index}"))
    return x


def flat(embedding: Tensor, dense: Tensor | None) -> Tensor:
    """Embeddings [batch, slots, k] and dense [batch, D] side by side: [batch, slots * k + D]."""
    slots, dim = embedding.shape[1:]
    rows = paddle.reshape(embedding, [-1, slots * dim])
    return rows if dense is None else paddle.concat([rows, dense], axis=1)
