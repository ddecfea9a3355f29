"""Every work-around for PaddlePaddle 2.6.2, each with the symptom it cures.

Nothing else in FleetPS touches Paddle's private parts. Import this module before `paddle`: it
checks the installation first, and so turns a wheel that can't work into one sentence.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_config.errors import UserError
from fleetps.installation import check_installation

RPC_BODY_LIMIT = 2 << 30
_ALL_REDUCE = {"ring_id": 0, "use_calc_stream": True}

check_installation()
import paddle  # noqa: E402  the check above must come first
from google.protobuf import text_format  # noqa: E402
from paddle.base import core, framework  # noqa: E402
from paddle.distributed import fleet  # noqa: E402
from paddle.distributed.ps import the_one_ps  # noqa: E402
from paddle.distributed.ps.utils.public import get_the_one_recv_context  # noqa: E402

if not hasattr(core, "DistFleetWrapper"):
    raise UserError(
        f"PaddlePaddle {paddle.__version__} was built without its parameter server: "
        "pip install paddlepaddle==2.6.2"
    )


def _raise_rpc_limit() -> None:
    """Let messages of up to 2 GB pass; has to come before `fleet.init`.

    Symptom: brpc refuses bodies over 64 MB; a pull then sleeps 300 s, a push is dropped with a log
    line only. The flag can't be set through Paddle, so the two C++ globals are written directly.
    """
    library = ctypes.CDLL(str(Path(paddle.__file__).parent / "base" / "libpaddle.so"))
    ctypes.c_uint64.in_dll(library, "_ZN4brpc5fLU6419FLAGS_max_body_sizeE").value = RPC_BODY_LIMIT
    ctypes.c_int64.in_dll(
        library, "_ZN4brpc5fLI6432FLAGS_socket_max_unwritten_bytesE"
    ).value = RPC_BODY_LIMIT


def runtime() -> Any:
    """The parameter-server runtime that `minimize` made."""
    return fleet.fleet._runtime_handle


def describe_tables(complete: Callable[[Any], None], client_flags: Mapping[str, str | int]) -> None:
    """Write the whole description of tables and client ourselves.

    Call after `minimize`, before `fleet.init_server` or `fleet.init_worker`.

    Symptoms: a sparse rule that isn't set becomes Adam; betas and epsilon of a configured Adam are
    overwritten with 0.9, 0.999, 1e-8; 1000 shards per table; time-outs can't be set
    (FLAGS_pserver_* in the environment do nothing).

    Args:
        complete: gets Paddle's own PSParameter message and sets every field that matters.
        client_flags: gflags of the RPC client, e.g. {"pserver_connect_timeout_ms": 1000}.
    """
    builder = runtime().ps_desc_builder

    def completed(build: Callable[[], str]) -> Callable[[], str]:
        def build_completed() -> str:
            message = the_one_ps.the_one_ps_pb2.PSParameter()
            text_format.Parse(build(), message)
            complete(message)
            message.init_gflags = " ".join(
                f"-{name}={value}" for name, value in client_flags.items()
            )
            return str(text_format.MessageToString(message))

        return build_completed

    builder.build_server_desc = completed(builder.build_server_desc)
    builder.build_worker_desc = completed(builder.build_worker_desc)


def dense_tables() -> list[tuple[int, list[str]]]:
    """(table id, parameter names in the order of the table) of each dense table of this job."""
    rt = runtime()
    names_by_table = get_the_one_recv_context(rt.context, split_dense_table=rt.is_heter_ps_mode)
    return [
        (ctx.table_id(), names_by_table[ctx.table_id()])
        for ctx in rt._send_ctx.values()
        if not ctx.is_sparse()
    ]


def pull_dense() -> None:
    """Copy the servers' dense parameters into the worker's scope.

    Symptom: only the start of a `train_from_dataset` pulls them; at its end the worker lags the
    servers.
    """
    for table_id, names in dense_tables():
        runtime()._worker.pull_dense_params(paddle.static.global_scope(), table_id, names)


def push_dense() -> None:
    """Make this worker's dense parameters those of the servers."""
    for table_id, names in dense_tables():
        runtime()._worker.push_dense_params(paddle.static.global_scope(), table_id, names)


def never_pull_dense(program: Any) -> None:
    """Train `program` without the thread that pulls dense parameters in the background.

    Symptom: in `sync` the servers' dense values are those of the last epoch's end, and they
    overwrite the worker's in the middle of a step.
    """
    program._fleet_opt = None


def flush() -> None:
    """Return when every push of this worker has reached the servers: pushes are queued."""
    runtime()._worker.client_flush()


def save_table(table_id: int, directory: str) -> None:
    """Write all rows of a sparse table into `directory`/<table id>/, while nobody trains.

    Nothing is raised on failure, nor by `load_table`: the caller has to look.
    """
    runtime()._worker.save_one_model(table_id, directory, 0)


def load_table(table_id: int, directory: str) -> None:
    """Let the servers add the rows in `directory`/<table id>/ to a sparse table."""
    runtime()._worker.load_one_table(table_id, directory, 0)


def sparse_tables() -> dict[str, int]:
    """Table id of each sparse table by its name."""
    rt = runtime()
    names = get_the_one_recv_context(
        rt.context, is_dense=False, split_dense_table=rt.is_heter_ps_mode
    )
    return {table[0]: table_id for table_id, table in names.items()}


def shrink_table(table_id: int) -> None:
    """Decay shows and clicks and delete rows as the table's accessor says, while nobody trains."""
    runtime()._worker.shrink_sparse_table(table_id, 0)


_AGING = 3  # the mode of save after which every row is one "day" older


def prepare_aging(accessor: Any) -> None:
    """Let `age_table` write nothing: what it would save goes through this command.

    Symptom: no call makes rows older, so that `delete_after_unseen_days` never applies; only a
    whole save of mode 3 does. The command takes the text of the rows and comments out the file.
    """
    accessor.table_accessor_save_param.add(param=_AGING, converter="cat > /dev/null #")


def age_table(table_id: int) -> None:
    """Add 1 to the `unseen_days` of every row; a push sets them to 0.

    Leaves an empty directory `aging` where the servers run.
    """
    runtime()._worker.save_one_model(table_id, "aging", _AGING)


def skip_restart_init() -> None:
    """Call before `fleet.init_worker` where the dense table has its values already.

    Symptom: a worker 0 that joins again overwrites them with fresh random ones for everybody.
    """
    os.environ["TEST_MODE"] = "1"


def call_after_batch(hook: Callable[[Any, Any], None], first: Any, second: Any) -> None:
    """Append a call of `hook` with two tensors to the default main program.

    Symptom: Paddle counts `self` of a method as an argument (IndexError in the training thread), so
    it gets a function.
    """

    def call(first: Any, second: Any) -> None:
        _keep_thread_state()
        hook(first, second)

    paddle.static.py_func(call, x=[first, second], out=None)


# Training threads that Python knows; Paddle keeps them in a pool.
_known_threads: set[int] = set()


def _keep_thread_state() -> None:
    """Let Python's state of the calling thread live as long as the thread.

    Symptom: the threads are Paddle's, so each call of Python makes such a state and deletes it
    again, which takes longer than what is called.
    """
    thread = threading.get_ident()
    if thread not in _known_threads:
        _known_threads.add(thread)
        ctypes.pythonapi.PyGILState_Ensure()  # counts one user more, who never leaves


def append_all_reduce(tensor: Any) -> None:
    """Append an op that sums a tensor over all connected workers, in place."""
    tensor.block.append_op(
        type="c_allreduce_sum",
        inputs={"X": [tensor]},
        outputs={"Out": [tensor]},
        attrs=_ALL_REDUCE,
    )


def insert_barrier(program: Any, before: str) -> None:
    """Insert an all-reduce before the first op of this type."""
    block = program.global_block()
    index = next(i for i, op in enumerate(block.ops) if op.type == before)
    token = block.create_var(name=f"barrier.{before}", shape=[1], dtype="float32")
    attrs = {"shape": [1], "value": 1.0, "dtype": token.dtype}
    block._insert_op(index, type="fill_constant", outputs={"Out": [token]}, attrs=attrs)
    block._insert_op(
        index + 1,
        type="c_allreduce_sum",
        inputs={"X": [token]},
        outputs={"Out": [token]},
        attrs=_ALL_REDUCE,
    )


def append_broadcast(tensor: Any) -> None:
    """Append an op that gives all connected workers the tensor that worker 0 has."""
    tensor.block.append_op(
        type="c_broadcast",
        inputs={"X": [tensor]},
        outputs={"Out": [tensor]},
        attrs={"ring_id": 0, "root": 0, "use_calc_stream": True},
    )


def connect_workers(rank: int, workers: int, store: tuple[str, int], timeout: float) -> None:
    """Connect all workers for `append_all_reduce`; returns when all are connected.

    Symptoms: `paddle.distributed.gloo_init_parallel_env` waits 115 days for a peer that died, and
    its rendezvous is a forked process that outlives a killed worker.

    Args:
        store: host and port of a key-value store (`training.group_store`).
        timeout: seconds for the connection and for each operation later.

    Raises:
        RuntimeError: a peer did not come or went away.
    """
    strategy = core.GlooParallelStrategy()
    strategy.rank, strategy.rank_num = rank, workers
    strategy.ip_address, strategy.ip_port = store
    strategy.init_seconds = strategy.run_seconds = math.ceil(timeout)
    context = core.GlooParallelContext(strategy)
    context.init()
    context.barrier()  # until then a slower peer still asks the store


def append_on_condition(condition: Any, build: Callable[[], None]) -> None:
    """Append `build()`'s ops so that they run only when `condition` ([1] bool) is true.

    Symptom: an optimizer refuses a block that has no backward block; it gets the block itself.
    """

    def inside() -> None:
        block = paddle.static.default_main_program().current_block()
        block._set_forward_block_idx(block.idx)
        build()

    paddle.static.nn.cond(condition, inside, None)


def rows_of(tensor: Any) -> int:
    """First dimension of a tensor that `py_func` handed over."""
    return int(tensor.shape()[0])


@dataclass(frozen=True)
class Operator:
    """An operator that was taken out of a program, to be put back elsewhere."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any]


def remove_ops(program: Any, types: Sequence[str]) -> list[Operator]:
    """Take all operators of these types out of the global block, in order."""
    block = program.global_block()
    removed = []
    for index in reversed(range(len(block.ops))):
        op = block.ops[index]
        if op.type in types:
            inputs = {name: op.input(name) for name in op.input_names}
            outputs = {name: op.output(name) for name in op.output_names}
            removed.append(Operator(op.type, inputs, outputs, op.all_attrs()))
            block._remove_op(index)
    return removed[::-1]


def make_temporary(parameter: Any) -> None:
    """Let each training thread have its own of this variable, which was made as a parameter.

    Symptom: a parameter is shared by all threads; and one that just isn't persistable can't be
    cloned with its program ("has been created before").
    """
    parameter.persistable = False
    parameter.desc.set_is_parameter(False)
    block, name = parameter.block, parameter.name
    block.vars[name] = framework.Variable(
        block, name=name, shape=parameter.shape, dtype=parameter.dtype, persistable=False
    )


def append_ops(program: Any, ops: Sequence[Operator]) -> None:
    """Append operators that were taken out, to the present block."""
    block = program.current_block()
    for op in ops:
        block.append_op(type=op.type, inputs=op.inputs, outputs=op.outputs, attrs=op.attrs)


def empty_copy(program: Any) -> Any:
    """A program with the same variables and no ops."""
    copy = program.clone()
    block = copy.global_block()
    for index in reversed(range(len(block.ops))):
        block._remove_op(index)
    return copy


def copy_program(program: Any) -> Any:
    """A program that trains in the same way.

    Symptoms: `clone` forgets which trainer runs it, and that trainer's settings are kept under the
    Python id of the program: a copy never pulls dense parameters, or dies of signal 11.
    """
    copy = program.clone()
    options = dict(program._fleet_opt)
    configs = options["program_configs"]
    options["program_configs"] = {str(id(copy)): configs[str(id(program))]}
    copy._fleet_opt = options
    return copy


class SharedScope:
    """A scope beside the global one, in which variables may share the memory of those in there.

    Programs that run between calls of `train_from_dataset` belong in it. Symptom: such a call
    deletes all scopes below the one that it trains in, those too in which an executor keeps the
    programs that it has run; to run one again reads freed memory (signal 11, or strange errors).
    """

    def __init__(self) -> None:
        self.scope = core.Scope()

    def share(self, names: Sequence[str]) -> None:
        """Let these variables be the global ones."""
        for name in names:
            tensor = paddle.static.global_scope().find_var(name).get_tensor()
            self.scope.var(name).get_tensor()._share_data_with(tensor)


def init_role() -> None:
    """Read this process's part from PADDLE_* variables.

    FLAGS_LAUNCH_BARRIER=0: Paddle would wait for servers without a deadline; the agents have done
    it already.
    """
    os.environ["FLAGS_LAUNCH_BARRIER"] = "0"
    os.environ["PADDLE_WITH_GLOO"] = "0"
    _raise_rpc_limit()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
