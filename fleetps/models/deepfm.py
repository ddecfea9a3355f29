"""DeepFM (Guo et al., 2017): a factorisation machine beside a DNN over the same embeddings.

The first value of each table row is the id's first-order weight, the others are its factors v.
Second order: sum over pairs <v_i, v_j> = 0.5 * (|sum v_i|^2 - sum |v_i|^2) (Rendle, 2010).
"""

from __future__ import annotations

from pydantic import PositiveInt

from fleetps.models.base import Inputs, Params, Tensor, paddle, register
from fleetps.models.layers import beside, linear, mlp


class DeepFMParams(Params):
    """hidden: sizes of the deep part's hidden layers, first to last."""

    hidden: list[PositiveInt] = [256, 128, 64]


@register("deepfm", DeepFMParams)
def build(inputs: Inputs, params: DeepFMParams) -> Tensor:
    """Logit [batch, 1]: first order + pairs + deep."""
    rows = inputs.embedding()
    factors = rows[:, :, 1:]
    first = paddle.sum(rows[:, :, 0], axis=1, keepdim=True)
    if inputs.dense is not None:
        first = first + linear(inputs.dense, 1, "first")
    total = paddle.sum(factors, axis=1)
    pairs = 0.5 * paddle.sum(
        total * total - paddle.sum(factors * factors, axis=1), axis=1, keepdim=True
    )
    deep = linear(mlp(beside(factors, inputs.dense), params.hidden), 1, "out")
    return first + pairs + deep
