"""Optimizers and table rules in plain numpy, written from their papers and definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
# (parameter, gradient, step from 1, rate) -> new parameter
Step = Callable[[Array, Array, int, float], Array]


def sgd() -> Step:
    def step(p: Array, g: Array, t: int, rate: float) -> Array:
        return p - rate * g

    return step


def momentum(mu: float) -> Step:
    velocity = 0.0

    def step(p: Array, g: Array, t: int, rate: float) -> Array:
        nonlocal velocity
        velocity = mu * velocity + g
        return p - rate * velocity

    return step


def adagrad(epsilon: float) -> Step:
    total = 0.0

    def step(p: Array, g: Array, t: int, rate: float) -> Array:
        nonlocal total
        total = total + g * g
        return p - rate * g / (np.sqrt(total) + epsilon)

    return step


def adam(beta1: float, beta2: float, epsilon: float, decay: float = 0.0) -> Step:
    """Kingma and Ba, 2015; with decay: decoupled (Loshchilov and Hutter, 2019)."""
    m = v = 0.0

    def step(p: Array, g: Array, t: int, rate: float) -> Array:
        nonlocal m, v
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        unbiased = (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
        return p - rate * decay * p - rate * unbiased

    return step


def clipped(gradients: Sequence[Array], norm: float) -> list[Array]:
    """All gradients scaled so that their joint 2-norm is at most `norm`."""
    total = np.sqrt(sum(float((g**2).sum()) for g in gradients))
    return [g * min(1.0, norm / total) for g in gradients]
