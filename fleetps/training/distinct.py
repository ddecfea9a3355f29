"""Each id of a batch once, and back: what crosses the network is as small as it can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import paddle

from fleetps import paddle_graph

Tensor = Any


@dataclass(frozen=True)
class Distinct:
    """The ids of a batch.

    Attributes:
        keys: each id once, [distinct ids, 1] int64.
        places: of every occurrence in `keys`, [all ids] int64.
        shows: occurrences of each key, [distinct ids, 1] float32.
        clicks: of those, the ones in an example with label 1.
    """

    keys: Tensor
    places: Tensor
    shows: Tensor
    clicks: Tensor


def of_batch(ids: list[Tensor], widths: list[int | None], label: str) -> Distinct:
    """Of all columns' ids.

    Args:
        ids: of each column, [n, 1] int64.
        widths: ids of an example in each column; None = any number, with a level of detail.
        label: name of the variable with the labels, [batch, 1] int64.
    """
    flat = paddle.reshape(ids[0] if len(ids) == 1 else paddle.concat(ids, axis=0), [-1])
    keys, places = paddle_graph.unique(flat)
    examples = paddle.cast(
        paddle.static.default_main_program().global_block().var(label), "float32"
    )
    clicked = [
        paddle.reshape(_of_occurrences(examples, part, width), [-1])
        for part, width in zip(ids, widths, strict=True)
    ]
    all_clicked = clicked[0] if len(clicked) == 1 else paddle.concat(clicked, axis=0)
    return Distinct(
        keys=paddle.reshape(keys, [-1, 1]),
        places=places,
        shows=paddle.reshape(paddle.cast(paddle.bincount(places), "float32"), [-1, 1]),
        clicks=paddle.reshape(paddle.bincount(places, weights=all_clicked), [-1, 1]),
    )


def _of_occurrences(examples: Tensor, ids: Tensor, width: int | None) -> Tensor:
    """[batch, 1] -> the value of each id's example."""
    if width is None:
        return paddle.static.nn.sequence_lod.sequence_expand(examples, ids)
    return paddle.expand(examples, [-1, width])


def spread(rows: Tensor, places: Tensor, ids: list[Tensor]) -> list[Tensor]:
    """The rows of the distinct ids, [distinct ids, dim] -> those of each column's, [n, dim]."""
    return split(paddle_graph.take_rows(rows, places), ids)


def split(rows: Tensor, ids: list[Tensor]) -> list[Tensor]:
    """The rows of all ids -> those of each column's, grouped as its ids are."""
    if len(ids) == 1:
        return [_grouped(rows, ids[0])]
    parts, start = [], paddle.zeros([1], "int32")
    for part in ids:
        end = start + paddle.shape(part)[0:1]
        parts.append(_grouped(paddle.slice(rows, axes=[0], starts=[start], ends=[end]), part))
        start = end
    return parts


def _grouped(rows: Tensor, ids: Tensor) -> Tensor:
    """Paddle has the operator but no function for it."""
    if not ids.lod_level:
        return rows
    block = paddle.static.default_main_program().global_block()
    name = paddle.utils.unique_name.generate("grouped")
    grouped = block.create_var(name=name, dtype="float32", lod_level=ids.lod_level)
    block.append_op(
        type="lod_reset", inputs={"X": rows, "Y": ids}, outputs={"Out": grouped}, attrs={}
    )
    return grouped
