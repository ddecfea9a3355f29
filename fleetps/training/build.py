"""The programs of each role: forward pass, gradients, update, hooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import paddle
from paddle.distributed import fleet

from fleet_config.job import Job
from fleet_config.tables import local_rows
from fleetps import paddle_compat
from fleetps.data.dataset import Dataset
from fleetps.training import dense, local_table, sparse
from fleetps.training.program import Network, batch_rows, build_network

# Gets (summed loss [], label [batch, 1]) after each training batch, (logit, label) after each
# evaluation batch.
Hook = Callable[[Any, Any], None]

# gflags of the workers' RPC client. The engine sums up to <limit> + 1 pushes before it sends one,
# 13 by default: parameters lag by as many steps, and AdaGrad makes one step of 13. On 400,000 rows
# with 2 + 2 processes an epoch ends with a loss of 0.60 at 12, 0.52 at 4, 0.50 at 0 (local: 0.49).
# Sparse pushes gain no speed by waiting; dense ones do, as each carries all parameters.
CLIENT_FLAGS = {
    "pserver_push_dense_merge_limit": 4,
    "pserver_push_sparse_merge_limit": 0,
    "pserver_connect_timeout_ms": 10_000,
    "pserver_timeout_ms": 500_000,
}


@dataclass(frozen=True)
class Programs:
    """What a worker runs.

    Attributes:
        train, evaluate: main programs; evaluate changes nothing.
        startup: initialises everything that this process owns.
        feeds: variables to read, in the order of the data set's columns.
        dense: names of the dense parameters.
        learning_rate: name of the dense optimizer's learning-rate variable.
    """

    train: Any
    evaluate: Any
    startup: Any
    feeds: list[Any]
    dense: list[str]
    learning_rate: str


def build_worker(job: Job, dataset: Dataset, on_batch: Hook, on_evaluated: Hook) -> Programs:
    """Programs of a worker that pulls from and pushes to servers. Call after `fleet.init`."""
    network, startup = _minimized(job, dataset)
    train = network.program
    evaluate = train.clone(for_test=True)
    paddle_compat.remove_ops(evaluate, ["send", "distributed_push_sparse"])
    names = sorted(p.name for p in train.all_parameters() if p.name not in job.tables)
    with paddle.static.program_guard(train, startup):
        scale = sparse.scale_per_row(dataset.columns)
        label = train.global_block().var(network.label.name)
        rate = dense.send_deltas(job.optimizer, train, names, scale or 1.0 / batch_rows(label))
    return _with_hooks(network, train, evaluate, startup, names, rate, on_batch, on_evaluated)


def build_server(job: Job, dataset: Dataset) -> None:
    """What a server has to know, its tables. Call between `fleet.init` and `init_server`."""
    _minimized(job, dataset)


def build_local(job: Job, dataset: Dataset, on_batch: Hook, on_evaluated: Hook) -> Programs:
    """Programs of a process that trains alone."""
    train, startup = paddle.static.Program(), paddle.static.Program()
    tables = local_table.LocalTables(job.tables, local_rows(dataset.distinct_ids))
    with paddle.static.program_guard(train, startup), paddle.utils.unique_name.guard():
        network = build_network(job, dataset, tables.lookup)
        evaluate = train.clone(for_test=True)
        parameters = train.all_parameters()
        gradients = paddle.static.gradients([network.loss_sum], [*parameters, *tables.rows])
        pairs = list(zip(parameters, gradients[: len(parameters)], strict=True))
        rate = dense.update_in_place(job.optimizer, pairs, 1.0 / batch_rows(network.label))
        tables.update(gradients[len(parameters) :])
    names = sorted(p.name for p in parameters)
    return _with_hooks(network, train, evaluate, startup, names, rate, on_batch, on_evaluated)


def _minimized(job: Job, dataset: Dataset) -> tuple[Network, Any]:
    """The network after Paddle's parameter-server passes, and the start-up program that they left.

    What is minimised is the summed loss divided by what the engine will multiply sparse gradients
    with, so that they arrive as those of the summed loss.
    """
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        network = build_network(job, dataset, sparse.ServerTables(dataset.columns).lookup)
        scale = sparse.scale_per_row(dataset.columns)
        objective = (
            network.loss_sum / (scale * batch_rows(network.label)) if scale else network.loss_sum
        )
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        # The servers' dense rule: new = old - 1.0 * what a worker sends (see `dense`).
        fleet.distributed_optimizer(paddle.optimizer.SGD(1.0), strategy).minimize(objective)
        startup = paddle.static.default_startup_program()
    network = dataclasses.replace(network, program=objective.block.program)
    paddle_compat.describe_tables(
        lambda message: sparse.complete_description(job, message), CLIENT_FLAGS
    )
    return network, startup


def _with_hooks(
    network: Network,
    train: Any,
    evaluate: Any,
    startup: Any,
    names: list[str],
    rate: str,
    on_batch: Hook,
    on_evaluated: Hook,
) -> Programs:
    for program, first, hook in (
        (train, network.loss_sum, on_batch),
        (evaluate, network.logit, on_evaluated),
    ):
        with paddle.static.program_guard(program):
            block = program.global_block()
            paddle_compat.call_after_batch(
                hook, block.var(first.name), block.var(network.label.name)
            )
    feeds = [train.global_block().var(feed.name) for feed in network.feeds]
    return Programs(train, evaluate, startup, feeds, names, rate)
