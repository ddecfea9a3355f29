"""The programs of mode geo.

A worker trains like a process without servers, on tables and optimizers of its own, one task of at
most `mode.steps` batches after the other. Before a task it pulls the rows of the task's ids and the
dense parameters; after it every server adds, for each value,

    (after - before) / learners

the mean of what the workers learnt in the meantime, of those that got on (`Learners`): local SGD
with averaging (McMahan et al., 2017; Stich, 2019). The state of rules and optimizers stays where it
is, in each worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import paddle

from fleet_config.job import Job
from fleet_config.tables import NaiveRule, Table
from fleetps import paddle_compat
from fleetps.data.dataset import Dataset
from fleetps.memory import worker_rows
from fleetps.paddle_compat import Operator
from fleetps.training import build, local_table
from fleetps.training.program import feeds_of, flat_ids

Tensor = Any

MARKS = "marked-rows"  # [table rows] float32: 1 where a task needs the row
ROWS = "rows"  # feed: row numbers, [n, 1] int64
SHARE = "share"  # feed: 1 / learners, [1] float32


@dataclass(frozen=True)
class ExchangePrograms:
    """What a worker runs between its tasks.

    Attributes:
        mark: run over a task's data; sets MARKS.
        pull: takes over ROWS of all tables; `pulled(table)` are their values, [n, dim].
        push: sends the change of ROWS since `before(table)`, a feed of [n, dim].
        keep: remembers the dense parameters.
        send: sends their change since.
        tables, dense: names of the variables that are exchanged.
    """

    mark: Any
    pull: Any
    push: Any
    keep: Any
    send: Any
    tables: list[str]
    dense: list[str]


def pulled(table: str) -> str:
    """Variable with the rows of a table that were just pulled."""
    return f"{table}.pulled"


def before(name: str) -> str:
    """Variable with the values that a change is counted from."""
    return f"{name}.before"


def server_job(job: Job) -> Job:
    """The job as the servers have to see it: they only add, within the rule's bounds."""
    return job.model_copy(
        update={"tables": {name: _adding(table) for name, table in job.tables.items()}}
    )


def _adding(table: Table) -> Table:
    rule = NaiveRule(
        learning_rate=1.0, initial_range=table.rule.initial_range, bounds=table.rule.bounds
    )
    return table.model_copy(update={"rule": rule})


def build_geo(
    job: Job, dataset: Dataset, on_batch: build.Hook, on_evaluated: build.Hook
) -> tuple[build.Programs, ExchangePrograms]:
    """Programs of a worker. Call after `fleet.init`."""
    network, _ = build.minimized(server_job(job), dataset)
    # Of the network as Paddle's passes left it only the operators that speak to servers are of use.
    ops = paddle_compat.remove_ops(
        network.program, ["distributed_lookup_table", "distributed_push_sparse", "send"]
    )
    rows = worker_rows(job, dataset.distinct_ids)
    programs = build.build_local(job, dataset, rows, on_batch, on_evaluated)
    shapes = {name: [rows, table.dim] for name, table in job.tables.items()}
    block = programs.evaluate.global_block()
    dense = {name: list(block.var(name).shape) for name in programs.dense}
    with paddle.utils.unique_name.guard():
        return programs, ExchangePrograms(
            mark=_mark(dataset, rows),
            pull=_pull(shapes, _by_table(ops, "distributed_lookup_table")),
            push=_push(shapes, _by_table(ops, "distributed_push_sparse")),
            keep=_keep(dense),
            send=_send(dense, [op for op in ops if op.type == "send"]),
            tables=list(shapes),
            dense=list(dense),
        )


def _by_table(ops: list[Operator], kind: str) -> dict[str, Operator]:
    names = {number: name for name, number in paddle_compat.sparse_tables().items()}
    return {names[op.attrs["table_id"]]: op for op in ops if op.type == kind}


def _mark(dataset: Dataset, rows: int) -> Any:
    with _program() as program:
        marks = _lasting(MARKS, [rows])
        numbers = local_table.row_numbers(flat_ids(feeds_of(dataset), dataset), rows)
        _append(
            "scatter",
            {"X": marks, "Ids": numbers, "Updates": paddle.ones_like(numbers).astype("float32")},
            {"Out": marks},
            {"overwrite": True},
        )
    return program


def _pull(shapes: dict[str, list[int]], ops: dict[str, Operator]) -> Any:
    with _program() as program:
        rows = paddle.static.data(ROWS, [-1, 1], "int64")
        for name, (count, dim) in shapes.items():
            table = _lasting(name, [count, dim])
            values = _block().create_var(name=pulled(name), shape=[-1, dim], dtype="float32")
            _append(ops[name].type, {"Ids": rows, "W": table}, {"Outputs": values}, ops[name].attrs)
            _append(
                "scatter",
                {"X": table, "Ids": paddle.reshape(rows, [-1]), "Updates": values},
                {"Out": table},
                {"overwrite": True},
            )
    return program


def _push(shapes: dict[str, list[int]], ops: dict[str, Operator]) -> Any:
    with _program() as program:
        rows = paddle.static.data(ROWS, [-1, 1], "int64")
        # The client multiplies what it pushes by the number of ids.
        factor = paddle.static.data(SHARE, [1], "float32") / paddle.shape(rows)[0].astype("float32")
        shows, clicks = paddle.ones([1], "float32"), paddle.zeros([1], "float32")
        for name, (count, dim) in shapes.items():
            old = paddle.static.data(before(name), [-1, dim], "float32")
            new = paddle.gather(_lasting(name, [count, dim]), paddle.reshape(rows, [-1]))
            gradient = (old - new) * factor
            _append(
                ops[name].type,
                {"Ids": rows, "Shows": shows, "Clicks": clicks, "Outputs": gradient},
                {"Outputs": gradient},
                {**ops[name].attrs, "slots": [0]},  # Paddle's own record of it lacks this
            )
    return program


def _keep(shapes: dict[str, list[int]]) -> Any:
    with _program() as program:
        for name, shape in shapes.items():
            paddle.assign(_lasting(name, shape), _lasting(before(name), shape))
    return program


def _send(shapes: dict[str, list[int]], sends: list[Operator]) -> Any:
    with _program() as program:
        share = paddle.static.data(SHARE, [1], "float32")
        for name, shape in shapes.items():
            change = _lasting(before(name), shape) - _lasting(name, shape)
            # One that doesn't last would be gone when `send` looks for it.
            paddle.assign(change * share, _lasting(f"{name}@GRAD", shape))
        paddle_compat.append_ops(program, sends)
    return program


@contextmanager
def _program() -> Iterator[Any]:
    """A new program, to which operators are appended meanwhile."""
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()):
        yield program


def _block() -> Any:
    return paddle.static.default_main_program().global_block()


def _append(kind: str, inputs: Any, outputs: Any, attrs: dict[str, Any]) -> None:
    _block().append_op(type=kind, inputs=inputs, outputs=outputs, attrs=attrs)


def _lasting(name: str, shape: list[int]) -> Tensor:
    """A variable that other programs see too."""
    variable = _block().create_var(name=name, shape=shape, dtype="float32", persistable=True)
    variable.stop_gradient = True
    return variable
