"""Layers that several models share."""

from __future__ import annotations

from collections.abc import Sequence

from fleetps.models.base import Tensor, paddle


def linear(x: Tensor | Sequence[Tensor], size: int, name: str) -> Tensor:
    """x @ w + b with Xavier weights and zero bias: [batch, n] -> [batch, size].

    Of several x it takes the columns side by side, without the copies that `concat` and its
    gradient would make, 6 % of a step; each x has its own part of the weights.
    """
    parts = x if isinstance(x, Sequence) else [x]
    width = sum(part.shape[1] for part in parts)
    total = paddle.static.create_parameter(
        [1, size],
        "float32",
        f"{name}.b",
        default_initializer=paddle.nn.initializer.Constant(0.0),
    )
    for index, part in enumerate(parts):
        weight = paddle.static.create_parameter(
            [part.shape[1], size],
            "float32",
            f"{name}.w{index or ''}",
            default_initializer=paddle.nn.initializer.XavierUniform(fan_in=width, fan_out=size),
        )
        # One operator; a broadcast add would sum the bias gradient in a scalar loop.
        total = paddle.addmm(total, part, weight)
    return total


def mlp(x: Tensor | Sequence[Tensor], hidden: Sequence[int], name: str = "mlp") -> Tensor:
    """Fully connected layers with ReLU: [batch, n], or several, -> [batch, hidden[-1]]."""
    for index, size in enumerate(hidden):
        x = paddle.nn.functional.relu(linear(x, size, f"{name}.{index}"))
    return x


def beside(embedding: Tensor, dense: Tensor | None) -> list[Tensor]:
    """What `linear` and `mlp` take: embeddings as [batch, slots * k], then dense [batch, D]."""
    slots, dim = embedding.shape[1:]
    rows = paddle.reshape(embedding, [-1, slots * dim])
    return [rows] if dense is None else [rows, dense]


def flat(embedding: Tensor, dense: Tensor | None) -> Tensor:
    """Embeddings [batch, slots, k] and dense [batch, D] as one: [batch, slots * k + D]."""
    parts = beside(embedding, dense)
    return parts[0] if len(parts) == 1 else paddle.concat(parts, axis=1)
