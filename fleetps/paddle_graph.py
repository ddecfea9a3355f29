"""What makes Paddle's programs faster: operators that no function makes, and rewriting.

Like `paddle_compat`, it touches Paddle's private parts, and says why.
"""

from __future__ import annotations

import math
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


def gradients_by_products(program: Any, ones: Any) -> None:
    """Let the gradients of `addmm` (total = input + x @ y) be matrix products.

    Symptom: `addmm_grad` sums the columns of the input's gradient, where that is one row, one
    number at a time, copies it where it isn't, and multiplies the others with 1: 8 % of a step.
    An input of another shape, such as a column, is left alone.

    Args:
        ones: [batch, 1] float32, a variable that is made before backward begins.
    """
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        op = block.ops[index]
        if op.type != "addmm_grad" or (op.attr("Alpha"), op.attr("Beta")) != (1.0, 1.0):
            continue
        inputs = {name: block.var(op.input(name)[0]) for name in ("Input", "X", "Y", "Out@GRAD")}
        above, (columns,) = inputs["Out@GRAD"], inputs["Y"].shape[1:]
        row, whole = (1, columns), (inputs["X"].shape[0], columns)
        if tuple(inputs["Input"].shape) not in (row, whole):
            continue
        products = {
            "X@GRAD": (above, inputs["Y"], False, True),
            "Y@GRAD": (inputs["X"], above, True, False),
        }
        if tuple(inputs["Input"].shape) == row:
            products["Input@GRAD"] = (ones, above, True, False)
        else:
            for name in op.output("Input@GRAD"):
                read_instead(block.ops, {name: above.name})
        outputs = {name: op.output(name) for name in products}
        block._remove_op(index)
        for name, (x, y, turn_x, turn_y) in products.items():
            for output in outputs[name]:
                block._insert_op(
                    index,
                    type="matmul_v2",
                    inputs={"X": x, "Y": y},
                    outputs={"Out": block.var(output)},
                    attrs={"trans_x": turn_x, "trans_y": turn_y, **_BACKWARD},
                )


def relu_by_clip(program: Any) -> None:
    """Let `relu` be `clip` to [0, inf).

    Symptom: `relu` and its gradient work on one number at a time, those of `clip` on sixteen.
    """
    for op in program.global_block().ops:
        if op.type not in ("relu", "relu_grad"):
            continue
        if op.type == "relu_grad":  # relu looks at what came out, clip at what came in: both > 0
            op.desc.set_input("X", op.input("Out"))
            op.desc.remove_input("Out")
        op.desc.set_type(op.type.replace("relu", "clip"))
        op._set_attr("min", 0.0)
        op._set_attr("max", math.inf)


# What forward, backward and update consist of. Others are left alone: an operator that takes a
# setting from a tensor would keep its first value.
_CACHEABLE = {
    *("assign", "bincount", "cast", "lookup_table_v2", "lookup_table_v2_grad", "unique"),
    *("addmm", "addmm_grad", "matmul_v2", "matmul_v2_grad", "clip", "clip_grad"),
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
