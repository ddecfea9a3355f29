"""What makes Paddle's programs faster: operators that no function makes, and rewriting.

Like `paddle_compat`, it touches Paddle's private parts, and says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle
from paddle.base import core

# Symptom: without it an operator among the gradients stays in a clone for evaluation, which has no
# gradients to give it.
_BACKWARD = {"op_role": core.op_proto_and_checker_maker.OpRole.Backward}


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
                    attrs=_BACKWARD,
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


def sum_bias_gradients_by_matmul(program: Any, ones: Any) -> None:
    """Let the gradient of a row that `addmm` added to all rows be a product with ones.

    Symptom: `addmm_grad` sums columns one number at a time, 4 to 8 % of a training step.

    Args:
        ones: [batch, 1] float32, a variable that is made before backward begins.
    """
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        op = block.ops[index]
        if op.type != "addmm_grad" or block.var(op.input("Input")[0]).shape[0] != 1:
            continue
        (total,) = op.output("Input@GRAD")
        op.desc.set_output("Input@GRAD", [])
        block._insert_op(
            index + 1,
            type="matmul_v2",
            inputs={"X": ones, "Y": block.var(op.input("Out@GRAD")[0])},
            outputs={"Out": block.var(total)},
            attrs={"trans_x": True, "trans_y": False, **_BACKWARD},
        )


# What forward, backward and update consist of. Others are left alone: an operator that takes a
# setting from a tensor would keep its first value.
_CACHEABLE = {
    *("assign", "bincount", "cast", "lookup_table_v2", "lookup_table_v2_grad", "unique"),
    *("addmm", "addmm_grad", "matmul_v2", "matmul_v2_grad", "relu", "relu_grad"),
    *("concat", "concat_grad", "reshape2", "reshape2_grad", "reduce_sum", "reduce_sum_grad"),
    *("elementwise_add", "elementwise_add_grad", "elementwise_mul", "elementwise_mul_grad"),
    *("elementwise_sub", "elementwise_sub_grad", "elementwise_div", "elementwise_div_grad"),
    *("sigmoid_cross_entropy_with_logits", "sigmoid_cross_entropy_with_logits_grad"),
    *("adagrad", "adam", "adamw", "momentum", "sgd"),
}


def cache_operators(program: Any) -> None:
    """Let operators keep what they look up by name in their first run.

    Symptom: an operator looks up its variables by name in every batch, 3 % of a training step.
    Each call of a trainer makes its operators anew.
    """
    for op in program.global_block().ops:
        settings = (name for name in op.input_names if name.endswith(("Tensor", "TensorList")))
        if op.type in _CACHEABLE and not any(map(op.input, settings)):
            op._set_attr("@ENABLE_CACHE_RUNTIME_CONTEXT@", True)
            # The shapes of the first batch hold for no other one.
            op._set_attr("@NOT_ALLOW_INFERSHAPE_CACHE@", True)
