"""Models whose gradients or values are known, for servers and workers of tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from fleetps import models


@models.register("known_gradient", models.Params)
def known_gradient(inputs: models.Inputs, params: models.Params) -> Any:
    """Logit 0 whatever the parameters, so that d(loss)/d(logit) = 0.5 - label, and
    d(logit)/d(weight) = the feature, d(logit)/d(any value of a row) = 1.
    """
    total = paddle.static.nn.fc(
        inputs.dense,
        1,
        weight_attr=paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(0.5)),
        bias_attr=paddle.ParamAttr(name="b"),
    )
    total = total + paddle.sum(inputs.embedding(), axis=[1, 2], keepdim=False).reshape([-1, 1])
    same = paddle.assign(total)
    same.stop_gradient = True
    return total - same


@models.register("weighted_gradient", models.Params)
def weighted_gradient(inputs: models.Inputs, params: models.Params) -> Any:
    """The same without dense parameters, for all tables of the job: d(logit)/d(value j of a row) is
    1 + j / 2.
    """
    parts = []
    for name, dim in inputs.dims.items():
        rows = inputs.embedding(name)
        PULLED[name] = rows.name
        weights = paddle.assign(np.arange(dim, dtype="float32") / 2 + 1)
        parts.append(paddle.sum(rows * weights, axis=[1, 2], keepdim=False).reshape([-1, 1]))
    total = paddle.add_n(parts) + _some_dense_parameter()
    same = paddle.assign(total)
    same.stop_gradient = True
    return total - same


PULLED: dict[str, str] = {}  # table -> variable with the rows of a batch


def _some_dense_parameter() -> Any:
    """Paddle's passes need one."""
    return paddle.static.create_parameter([1], "float32", name="offset")


@models.register("linear", models.Params)
def linear(inputs: models.Inputs, _params: models.Params) -> Any:
    """Logit = dense @ w + b + the sum of all values of the rows."""
    dense = paddle.static.nn.fc(
        inputs.dense,
        1,
        weight_attr=paddle.ParamAttr(name="w", initializer=paddle.nn.initializer.Constant(0.5)),
        bias_attr=paddle.ParamAttr(name="b"),
    )
    return dense + paddle.sum(inputs.embedding(), axis=[1, 2], keepdim=False).reshape([-1, 1])
