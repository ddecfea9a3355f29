"""What makes Paddle's programs faster: operators that no function makes, and rewriting.

Like `paddle_compat`, it touches Paddle's private parts, and says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle
from paddle.base import core


def unique(ids: Any) -> tuple[Any, Any]:
    """Each id once, in order of first occurrence, and the place of every id among them.

    Symptom: `paddle.unique` builds a sorted tree, which takes 15 % of a training step; the operator
    can use a hash table, but the function doesn't let it.

    Args:
        ids: [n] int64.

    Returns:
        [distinct ids] int64; [n] int64.
    """
    block = paddle.static.default_main_program().current_block()
    keys, places = (
        block.create_var(
            name=paddle.utils.unique_name.generate("unique"), dtype="int64", shape=[-1]
        )
        for _ in range(2)
    )
    keys.stop_gradient = places.stop_gradient = True
    attributes = {"dtype": core.VarDesc.VarType.INT64, "is_sorted": False}
    block.append_op(
        type="unique",
        inputs={"X": ids},
        outputs={"Out": keys, "Index": places},
        attrs=attributes,
    )
    return keys, places


def take_rows(rows: Any, places: Any) -> Any:
    """rows[places]: [m, dim] float32, [n] int64 -> [n, dim].

    Symptom: the gradient of `gather` calls a library function for each row; that of this operator
    is a plain loop.
    """
    block = paddle.static.default_main_program().current_block()
    name = paddle.utils.unique_name.generate("taken")
    taken = block.create_var(name=name, dtype=rows.dtype, shape=[-1, rows.shape[1]])
    block.append_op(
        type="lookup_table_v2",
        inputs={"W": rows, "Ids": places},
        outputs={"Out": taken},
        attrs={"is_sparse": False, "is_distributed": False, "padding_idx": -1},
    )
    return taken


def scale_pushes(program: Any, factor: Any) -> None:
    """Multiply what is pushed to sparse tables with a variable, float32 [1]."""
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        if block.ops[index].type == "distributed_push_sparse":
            for name in block.ops[index].output("Outputs"):
                gradient = block.var(name)
                block._insert_op(
                    index,
                    type="scale",
                    inputs={"X": gradient, "ScaleTensor": factor},
                    outputs={"Out": gradient},
                )


def read_instead(ops: Sequence[Any], names: Mapping[str, str]) -> None:
    """Let operators read other variables; what they write stays."""
    for op in ops:
        for name in set(op.input_arg_names) & names.keys():
            op._rename_input(name, names[name])


_RESHAPES = {"reshape2": ("X", "Out"), "reshape2_grad": ("Out@GRAD", "X@GRAD")}


def reshape_in_place(program: Any) -> None:
    """Let reshapes give their input another shape where nothing else needs it.

    Symptom: a reshape copies its input, and so does its gradient; 5 % of a training step.
    """
    block = program.global_block()
    for op in block.ops:
        if op.type not in _RESHAPES or 0 in op.attr("shape"):
            continue
        before, after = _RESHAPES[op.type]
        (source,), (target,) = op.input(before), op.output(after)
        makers = [other for other in block.ops if source in other.output_arg_names]
        readers = [other for other in block.ops if source in other.input_arg_names]
        # The first maker makes it, the others are reshapes in place, which read it too.
        if makers and readers == [*makers[1:], op] and not block.var(source).persistable:
            for other in (*makers, op):
                other._rename_output(source, target)
                other._rename_input(source, target)
