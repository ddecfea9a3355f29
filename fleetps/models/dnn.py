"""DNN: embeddings and dense features into a multi-layer perceptron."""

from __future__ import annotations

from pydantic import PositiveInt

from fleetps.models.base import Inputs, Params, Tensor, register
from fleetps.models.layers import beside, linear, mlp


class DnnParams(Params):
    """hidden: sizes of the hidden layers, first to last."""

    hidden: list[PositiveInt] = [256, 128, 64]


@register("dnn", DnnParams)
def build(inputs: Inputs, params: DnnParams) -> Tensor:
    """Logit [batch, 1]; every value of a table row is a factor."""
    return linear(mlp(beside(inputs.embedding(), inputs.dense), params.hidden), 1, "out")
