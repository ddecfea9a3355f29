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


# (values, summed gradient of a push, occurrences of the id in it) -> new values. A row has one for
# its first value and another for its factors.
Rule = Callable[[Array, Array, float], Array]


def naive_rule(rate: float) -> Rule:
    def step(p: Array, g: Array, show: float) -> Array:
        return p - rate * g

    return step


def adagrad_rule(rate: float, initial: float, *, shared: bool) -> Rule:
    """Duchi, Hazan and Singer, 2011, with three liberties of the engine: the gradient is the mean
    over the occurrences, a step is scaled by the sum before it, and the rate is multiplied by
    sqrt(initial). `shared`: one sum, of the mean square.
    """
    total: Array | float = 0.0

    def step(p: Array, g: Array, show: float) -> Array:
        nonlocal total
        g = g / show
        scale = np.sqrt(initial / (initial + total))
        total = total + ((g * g).mean() if shared else g * g)
        return p - rate * g * scale

    return step


def adam_rule(rate: float, beta1: float, beta2: float, epsilon: float, *, shared: bool) -> Rule:
    """Kingma and Ba, 2015, in the form of the end of their section 2: epsilon is added to the root
    of the plain second moment. `shared`: after each step all moments become their mean.
    """
    m: Array | float = 0.0
    v: Array | float = 0.0
    t = 0

    def step(p: Array, g: Array, show: float) -> Array:
        nonlocal m, v, t
        t += 1
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        corrected = rate * np.sqrt(1 - beta2**t) / (1 - beta1**t)
        new = p - corrected * m / (np.sqrt(v) + epsilon)
        if shared:
            m, v = m.mean(), v.mean()
        return new

    return step


class ServerRow:
    """A row as the engine keeps it, but for the random numbers that new factors start with.

    The factors come into being at the push after which the score has reached the threshold (the
    first push, if that is 0), and don't get the gradient of that push.
    """

    def __init__(self, dim: int, rule: Callable[[], Rule], bounds: tuple[float, float]) -> None:
        self.values = np.zeros(dim)
        self.show = self.click = 0.0
        self.has_factors = False
        self._first, self._factors = rule(), rule()
        self._bounds = bounds

    def push(
        self,
        gradient: Array,
        show: int,
        click: int,
        admits: Callable[[float, float], bool] | None = None,
    ) -> None:
        """`admits`: whether a row of so many shows and clicks gets factors (None: every one)."""
        self.show += show
        self.click += click
        first = self._first(self.values[:1], gradient[:1], show)
        factors = self.values[1:]
        if self.has_factors:
            factors = self._factors(factors, gradient[1:], show)
        self.values = np.clip(np.concatenate([first, factors]), *self._bounds)
        self.has_factors = self.has_factors or admits is None or admits(self.show, self.click)
