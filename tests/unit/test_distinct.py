"""Each id of a batch once: what is looked up and pushed, against a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
import pytest

from fleetps import paddle_graph
from fleetps.training import distinct

# Two slots in one column, and a column with 2, 0 and 3 ids.
PAIRS = np.array([[7, 5], [7, 7], [-1, 9]])
LENGTHS = [2, 0, 3]
BAGS = np.array([5, 11, 11, 11, 2**40])
LABELS = np.array([[1], [0], [1]])
EXAMPLE_OF_BAG = np.repeat([0, 1, 2], LENGTHS)


@pytest.fixture
def static() -> Iterator[None]:
    paddle.enable_static()
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        yield
    paddle.disable_static()


def run(*fetched: Any) -> list[Any]:
    """Values of variables of the default program; the ids and labels are fed."""
    bags = paddle.base.create_lod_tensor(BAGS.reshape(-1, 1), [LENGTHS], paddle.CPUPlace())
    feed = {"pairs": PAIRS.reshape(-1, 1), "bags": bags, "label": LABELS}
    found = paddle.static.Executor(paddle.CPUPlace()).run(
        feed=feed, fetch_list=list(fetched), return_numpy=False
    )
    return [np.array(value) for value in found]


def inputs() -> list[Any]:
    paddle.static.data("label", [-1, 1], "int64")
    bags = paddle.static.data("bags", [-1, 1], "int64", lod_level=1)
    return [paddle.static.data("pairs", [-1, 1], "int64"), bags]


def test_shows_and_clicks_of_each_id(static: None) -> None:
    batch = distinct.of_batch(inputs(), [2, None], "label")
    keys, places, shows, clicks = run(batch.keys, batch.places, batch.shows, batch.clicks)
    ids = np.concatenate([PAIRS.reshape(-1), BAGS])
    clicked = np.concatenate([np.repeat(LABELS[:, 0], 2), LABELS[EXAMPLE_OF_BAG, 0]])
    assert sorted(keys[:, 0]) == sorted(set(ids))
    np.testing.assert_array_equal(keys[places, 0], ids)
    for key, show, click in zip(keys[:, 0], shows[:, 0], clicks[:, 0], strict=True):
        assert show == (ids == key).sum()
        assert click == clicked[ids == key].sum()


def test_rows_return_to_their_columns_and_gradients_are_summed(static: None) -> None:
    columns = inputs()
    batch = distinct.of_batch(columns, [2, None], "label")
    rows = paddle.cast(batch.keys, "float32") * paddle.to_tensor([1.0, 2.0])
    rows.stop_gradient = False
    pairs, bags = distinct.spread(rows, batch.places, columns)
    pooled = paddle.static.nn.sequence_lod.sequence_pool(bags, "sum")
    loss = paddle.sum(pairs) + paddle.sum(10.0 * pooled)
    (gradient,) = paddle.static.gradients([loss], [rows])
    paddle_graph.reshape_in_place(loss.block.program)
    keys, pairs, pooled, gradient = run(batch.keys, pairs, pooled, gradient)
    np.testing.assert_array_equal(pairs, PAIRS.reshape(-1, 1) * [[1.0, 2.0]])
    sums = np.array([5 + 11, 0, 11 + 11 + 2.0**40])
    np.testing.assert_allclose(pooled, sums[:, None] * [[1.0, 2.0]], rtol=1e-6)
    expected = [(key == PAIRS).sum() + 10.0 * (key == BAGS).sum() for key in keys[:, 0]]
    np.testing.assert_array_equal(gradient, np.repeat(np.array(expected)[:, None], 2, axis=1))


def test_reshapes_in_place_change_no_value(static: None) -> None:
    x = paddle.static.data("x", [-1, 6], "float32")
    x.stop_gradient = False
    doubled = x * 2.0
    cube = paddle.reshape(paddle.reshape(doubled, [-1, 3, 2]), [-1, 2, 3])
    kept = paddle.reshape(doubled + 1.0, [-1, 2])  # what is read twice must keep its shape
    shifted = doubled + 1.0
    both = paddle.sum(paddle.reshape(shifted, [-1, 1])) + paddle.sum(shifted * shifted)
    loss = paddle.sum(cube * cube) + paddle.sum(kept) + both
    (gradient,) = paddle.static.gradients([loss], [doubled])
    fetched = [paddle.sum(cube * cube), loss, gradient]
    executor = paddle.static.Executor(paddle.CPUPlace())
    feed = {"x": np.arange(24.0, dtype="float32").reshape(4, 6)}
    before = executor.run(feed=feed, fetch_list=fetched)
    program = loss.block.program
    paddle_graph.reshape_in_place(program)
    reshapes = [op for op in program.global_block().ops if op.type == "reshape2"]
    assert [op.input("X") == op.output("Out") for op in reshapes] == [False, True, True, False]
    after = executor.run(program, feed=feed, fetch_list=fetched)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradients_by_products_and_relu_by_clip_are_the_same(static: None) -> None:
    x = paddle.static.data("x", [-1, 3], "float32")
    x.stop_gradient = False
    first, second = (paddle.static.create_parameter([3, 2], "float32") for _ in range(2))
    bias = paddle.static.create_parameter([1, 2], "float32")
    last, scaled = (paddle.static.create_parameter([2, 2], "float32") for _ in range(2))
    ones = paddle.ones_like(x[:, :1])
    total = paddle.addmm(paddle.addmm(bias, x, first), x * x, second)
    hidden = paddle.nn.functional.relu(total - 2.0)
    loss = paddle.sum(paddle.addmm(hidden, hidden, last) ** 2)
    loss = loss + paddle.sum(paddle.addmm(bias, total, scaled, alpha=2.0))
    gradients = paddle.static.gradients([loss], [first, second, bias, last, scaled, x])
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    feed = {"x": np.random.default_rng(1).normal(size=(50, 3)).astype("float32")}
    before = executor.run(feed=feed, fetch_list=[loss, *gradients])
    program = loss.block.program
    paddle_graph.gradients_by_products(program, ones)
    paddle_graph.relu_by_clip(program)
    types = [op.type for op in program.global_block().ops]
    assert types.count("addmm_grad") == 1, "alpha isn't 1"
    assert types.count("matmul_v2") == 3 + 2 + 2, "bias, x, first; x * x, second; hidden, last"
    assert types.count("clip") == types.count("clip_grad") == 1
    assert not {"relu", "relu_grad"} & set(types)
    after = executor.run(program, feed=feed, fetch_list=[loss, *gradients])
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("shape", [[2], [1, 1], [-1, 1]])
def test_gradients_by_products_leave_other_inputs_alone(static: None, shape: list[int]) -> None:
    x = paddle.static.data("x", [-1, 3], "float32")
    ones = paddle.ones_like(x[:, :1])
    added = x[:, :1] * 2.0 if shape[0] < 0 else paddle.static.create_parameter(shape, "float32")
    added.stop_gradient = False
    weight = paddle.static.create_parameter([3, 2], "float32")
    loss = paddle.sum(paddle.addmm(added, x, weight) ** 2)
    gradients = paddle.static.gradients([loss], [added, weight])
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    feed = {"x": np.arange(15.0, dtype="float32").reshape(5, 3)}
    before = executor.run(feed=feed, fetch_list=gradients)
    program = loss.block.program
    paddle_graph.gradients_by_products(program, ones)
    for one, other in zip(
        before, executor.run(program, feed=feed, fetch_list=gradients), strict=True
    ):
        np.testing.assert_array_equal(one, other)
