"""The programs of each role: forward pass, gradients, update, hooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import paddle
from paddle.distributed import fleet

from fleet_config.job import Job
from fleet_config.modes import Mode, SyncMode
from fleetps import paddle_compat, paddle_graph
from fleetps.data.dataset import Dataset
from fleetps.training import dense, group, local_table, sparse, strict
from fleetps.training.program import Lookup, Network, build_network

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
_COMPRESS = {"none": 0, "snappy": 1, "zlib": 3}


_ALONE = dense.Way(in_place=True)


@dataclass(frozen=True)
class Programs:
    """What a worker runs.

    Attributes:
        train: main program by the name of the mode.
        settle: by mode, updates with the gradients accumulated so far; None if none are.
        agree: gives all workers of a sync group the dense parameters and the optimizer's state of
            worker 0; None where no group is.
        evaluate: main program that changes nothing.
        startup: initialises everything that this process owns.
        feeds: variables to read, in the order of the data set's columns.
        dense: names of the dense parameters.
        state: names of the variables with the state of this process's optimizers.
        learning_rate: name of the dense optimizer's learning-rate variable.
    """

    train: Mapping[str, Any]
    settle: Mapping[str, Any | None]
    agree: Any | None
    evaluate: Any
    startup: Any
    feeds: list[Any]
    dense: list[str]
    state: list[str]
    learning_rate: str


def build_worker(job: Job, dataset: Dataset, on_batch: Hook, on_evaluated: Hook) -> Programs:
    """Programs of a worker that pulls from and pushes to servers. Call after `fleet.init`."""
    network, startup = minimized(job, dataset)
    base = network.program
    sends = paddle_compat.remove_ops(base, ["send"])
    evaluate = base.clone(for_test=True)
    paddle_compat.remove_ops(evaluate, ["distributed_push_sparse"])
    names = sorted(p.name for p in base.all_parameters() if p.name not in job.tables)
    train, settle = {}, {}
    for name, mode in _modes(job).items():
        updates = _Updates(job, network, names, mode, sends)
        train[name], updated = updates.training(startup)
        settle[name] = _settling(job, base, names, updates.way)
        _call(on_batch, train[name], network.loss_sum, network.label)
        if _is_strict(mode):
            with _appending(train[name], paddle.static.Program()):
                strict.append_step_end(train[name], job.cluster.workers)
        paddle_graph.cache_operators(train[name])
    _call(on_evaluated, evaluate, network.logit, network.label)
    together = "sync" in train and job.cluster.workers > 1
    return Programs(
        train=train,
        settle=settle,
        agree=group.agreement(train["sync"], [*names, *updated.state]) if together else None,
        evaluate=evaluate,
        startup=startup,
        feeds=[base.global_block().var(feed.name) for feed in network.feeds],
        dense=names,
        state=updated.state,
        learning_rate=updated.learning_rate,
    )


def _modes(job: Job) -> dict[str, Mode]:
    """Each mode of the job once; `bounded` runs the program of `async`."""
    return {mode.name: mode for mode in map(job.mode_of, range(job.job.epochs))}


def _is_strict(mode: Mode) -> bool:
    return isinstance(mode, SyncMode) and mode.strict


@dataclass(frozen=True)
class _Updates:
    """Makes the programs of one mode from the forward and backward pass."""

    job: Job
    network: Network
    names: list[str]
    mode: Mode
    sends: list[paddle_compat.Operator]

    def training(self, startup: Any) -> tuple[Any, dense.Updated]:
        """Forward, backward and update; `startup` gets what initialises the optimizer."""
        program = paddle_compat.copy_program(self.network.program)
        if self._together:
            paddle_compat.never_pull_dense(program)
        with _appending(program, startup):
            gradients = self._gradients(program)
            if self.job.observe.gradient_norm:
                dense.keep_norm(gradients)
            return program, dense.update(self.job.optimizer, gradients, self.way)

    @property
    def _together(self) -> bool:
        return isinstance(self.mode, SyncMode)

    @property
    def way(self) -> dense.Way:
        """sync: nothing is sent; else: nobody else's gradients are waited for."""
        workers = self.job.cluster.workers
        return dense.Way(workers=workers) if self._together else dense.Way(sends=self.sends)

    def _gradients(self, program: Any) -> dense.Gradients:
        block = program.global_block()
        return dense.Gradients(
            names=self.names,
            to_mean=None,
            to_sum=block.var(self.network.batch.name),
            rows=block.var(self.network.rows.name),
        )


def _settling(job: Job, network: Any, names: list[str], way: dense.Way) -> Any | None:
    """A program that updates with the gradients accumulated so far.

    `network`: any program with the parameters that no optimizer was added to.
    """
    if job.optimizer.accumulate == 1:
        return None
    program = paddle_compat.empty_copy(network)
    with _appending(program, paddle.static.Program()):
        dense.settle(job.optimizer, names, way)
    return program


@contextmanager
def _appending(program: Any, startup: Any) -> Iterator[None]:
    """Ops go to `program`. The optimizers of all modes get the same names, hence one state; no
    name meets one of the forward pass."""
    with (
        paddle.static.program_guard(program, startup),
        paddle.utils.unique_name.guard("update."),
    ):
        yield


def build_server(job: Job, dataset: Dataset) -> None:
    """What a server has to know, its tables. Call between `fleet.init` and `init_server`."""
    minimized(job, dataset)


def build_local(
    job: Job, dataset: Dataset, rows: int, on_batch: Hook, on_evaluated: Hook
) -> Programs:
    """Programs of a process that trains tables of its own, of so many rows each."""
    train, startup = paddle.static.Program(), paddle.static.Program()
    tables = local_table.LocalTables(job.tables, rows)
    with paddle.static.program_guard(train, startup), paddle.utils.unique_name.guard():
        network = build_network(job, dataset, tables.lookup)
        evaluate = train.clone(for_test=True)
        names = sorted(parameter.name for parameter in train.all_parameters())
        dense_and_rows = [*map(train.global_block().var, names), *tables.rows]
        gradients = paddle.static.gradients([network.loss_sum], dense_and_rows)
        found = dense.Gradients(names, 1.0 / network.rows, None, network.rows)
        with _appending(train, startup):
            if job.observe.gradient_norm:
                dense.keep_norm(found)
            updated = dense.update(job.optimizer, found, _ALONE)
        tables.update(gradients[len(names) :])
    settle = _settling(job, evaluate, names, _ALONE)
    _call(on_batch, train, network.loss_sum, network.label)
    _call(on_evaluated, evaluate, network.logit, network.label)
    modes = _modes(job)
    return Programs(
        train=dict.fromkeys(modes, train),
        settle=dict.fromkeys(modes, settle),
        agree=None,
        evaluate=evaluate,
        startup=startup,
        feeds=network.feeds,
        dense=names,
        state=[*updated.state, *tables.state],
        learning_rate=updated.learning_rate,
    )


def minimized(job: Job, dataset: Dataset) -> tuple[Network, Any]:
    """The network after Paddle's parameter-server passes, and the start-up program that they left.

    What is minimised is the mean loss of the batch, padding counted; what is pushed to tables is
    made the gradient of the summed loss.
    """
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        tables = sparse.ServerTables(dataset.columns)
        lookup: Lookup = tables.lookup
        if any(map(_is_strict, _modes(job).values())):
            lookup = strict.without_first_gradients(lookup)
        network = build_network(job, dataset, lookup)
        ones = paddle.ones_like(paddle.cast(network.label, "float32"))
        objective = network.loss_sum / network.batch
        factor = network.batch / tables.scale()
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        # The servers' dense rule: new = old - 1.0 * what a worker sends (see `dense`).
        fleet.distributed_optimizer(paddle.optimizer.SGD(1.0), strategy).minimize(objective)
        startup = paddle.static.default_startup_program()
    network = dataclasses.replace(network, program=objective.block.program)
    paddle_graph.scale_pushes(network.program, factor)
    paddle_graph.gradients_by_products(network.program, ones)
    paddle_graph.relu_by_clip(network.program)
    paddle_graph.reshape_in_place(network.program)
    flags = {**CLIENT_FLAGS, "pserver_communicate_compress_type": _COMPRESS[job.cluster.compress]}
    paddle_compat.describe_tables(lambda message: sparse.complete_description(job, message), flags)
    return network, startup


def _call(hook: Hook, program: Any, first: Any, second: Any) -> None:
    """Append a call of `hook` with two variables of the network."""
    with paddle.static.program_guard(program):
        block = program.global_block()
        paddle_compat.call_after_batch(hook, block.var(first.name), block.var(second.name))
