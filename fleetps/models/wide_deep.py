"""Wide & Deep (Cheng et al., 2016): a linear model beside a DNN, trained together.

The first value of each table row is the id's first-order (wide) weight, the others are its
embedding (deep), so both cross the network in one pull.
"""

from __future__ import annotations

from pydantic import PositiveInt

from fleetps.models.base import Inputs, Params, Tensor, paddle, register
from fleetps.models.layers import beside, linear, mlp


class WideDeepParams(Params):
    """hidden: sizes of the deep part's hidden layers, first to last."""

    hidden: list[PositiveInt] = [256, 128, 64]


@register("wide_deep", WideDeepParams)
def build(inputs: Inputs, params: WideDeepParams) -> Tensor:
    """Logit [batch, 1]: wide + deep."""
    rows = inputs.embedding()
    wide = paddle.sum(rows[:, :, 0], axis=1, keepdim=True)
    deep = linear(mlp(beside(rows[:, :, 1:], inputs.dense), params.hidden), 1, "out")
    if inputs.dense is not None:
        wide = wide + linear(inputs.dense, 1, "wide")
    return wide + deep
