"""TensorFlow's ParameterServerStrategy on the rows and the network of `benchmarks/throughput.py`.

    python tensorflow_ps.py rows.bin --vocabulary 524288 --batch 512

Runs in a virtual environment of its own (see ../peer.py and requirements-tensorflow.txt). The
parameter server, the worker and the coordinator ("chief") are processes. As TensorFlow's guide to
parameter servers advises, many steps make one `tf.function` call, the vocabulary is fixed, and the
data comes from a `tf.data` pipeline that keeps finished batches in memory. Optimizers are
TensorFlow's own fused operators, which run on the parameter server beside the variables.

rows.bin: per row [label, 13 dense features] float32, then 26 ids int32 below the vocabulary.
Prints one JSON line: examples/s of each pass and the settings.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

DENSE, SLOTS, DIM = 13, 26, 16
HIDDEN = (256, 128, 64)
FLOATS = 1 + DENSE
RECORD = 4 * (FLOATS + SLOTS)
WARM_UP = 2
SECONDS = 120.0


def main() -> None:
    options = parse()
    if options.role == "chief":
        chief(options)
    elif options.role:
        serve(options)
    else:
        launch(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows")
    parser.add_argument("--vocabulary", type=int, required=True)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--optimizer", choices=["sgd", "adagrad"], default="sgd")
    parser.add_argument("--steps", type=int, default=50, help="steps of one tf.function call")
    parser.add_argument("--unique", type=int, default=1, help="1: look up each id of a batch once")
    parser.add_argument("--intra", type=int, default=0, help="threads of an operator; 0: default")
    parser.add_argument("--inter", type=int, default=0, help="operators at a time; 0: default")
    parser.add_argument("--role", choices=["ps", "worker", "chief"], help=argparse.SUPPRESS)
    parser.add_argument("--cluster", help=argparse.SUPPRESS)
    return parser.parse_args()


def launch(options: argparse.Namespace) -> None:
    """Start a process for each role, and end them when the chief is through."""
    with ExitStack() as sockets:
        ports = []
        for _ in range(1 + options.workers):
            holder = sockets.enter_context(socket.socket())
            holder.bind(("127.0.0.1", 0))
            ports.append(f"127.0.0.1:{holder.getsockname()[1]}")
    cluster = {"ps": ports[:1], "worker": ports[1:]}
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    env["GRPC_FAIL_FAST"] = "use_caller"  # as TensorFlow's guide has it
    base = [sys.executable, *sys.argv, "--cluster", json.dumps(cluster)]
    servers = [
        subprocess.Popen([*base, "--role", role], env={**env, "TASK": str(index)})
        for role, addresses in cluster.items()
        for index in range(len(addresses))
    ]
    try:
        done = subprocess.run([*base, "--role", "chief"], env=env, timeout=SECONDS, check=False)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    sys.exit(done.returncode)


def serve(options: argparse.Namespace) -> None:
    import tensorflow as tf  # noqa: PLC0415 - the launcher needs none

    threads(tf, options)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(json.loads(options.cluster)),
        job_name=options.role,
        task_index=int(os.environ["TASK"]),
        protocol="grpc",
        start=True,
    )
    server.join()


def threads(tf: Any, options: argparse.Namespace) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(options.intra)
    tf.config.threading.set_inter_op_parallelism_threads(options.inter)


def chief(options: argparse.Namespace) -> None:
    import tensorflow as tf  # noqa: PLC0415

    rows = Path(options.rows).stat().st_size // RECORD
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(json.loads(options.cluster)), rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        network = Network(tf, options)

    def batches() -> Any:
        return (
            tf.data.FixedLengthRecordDataset(options.rows, RECORD)
            .batch(options.batch, drop_remainder=True)
            .map(lambda records: decoded(tf, records))
            .cache()
            .repeat()
            .prefetch(4)
        )

    iterator = iter(coordinator.create_per_worker_dataset(tf.function(batches)))

    @tf.function
    def train(batch: Any) -> None:
        for _ in tf.range(options.steps):
            network.step(*next(batch))

    calls = max(1, round(rows / options.batch / options.steps))
    rates = []
    for _ in range(WARM_UP + options.passes):
        start = time.perf_counter()
        for _ in range(calls):
            coordinator.schedule(train, args=(iterator,))
        coordinator.join()
        seconds = time.perf_counter() - start
        rates.append(calls * options.steps * options.batch / seconds)
    settings = {key: getattr(options, key) for key in ("optimizer", "steps", "unique")}
    settings |= {"intra": options.intra, "inter": options.inter, "version": tf.__version__}
    print(json.dumps({"rates": rates[WARM_UP:], "loss": network.loss(), **settings}), flush=True)


def decoded(tf: Any, records: Any) -> tuple[Any, Any, Any]:
    """Label [batch, 1] and dense [batch, 13] float32, ids [batch * 26] int32."""
    floats = tf.io.decode_raw(tf.strings.substr(records, 0, 4 * FLOATS), tf.float32)
    ids = tf.io.decode_raw(tf.strings.substr(records, 4 * FLOATS, 4 * SLOTS), tf.int32)
    return floats[:, :1], floats[:, 1:], tf.reshape(ids, [-1])


class Network:
    """Embedding and MLP 256-128-64 with one output; variables are on the parameter server."""

    def __init__(self, tf: Any, options: argparse.Namespace) -> None:
        self._tf = tf
        self._options = options
        self._table = tf.Variable(
            tf.random.uniform([options.vocabulary, DIM], -1e-4, 1e-4), name="embedding"
        )
        sizes = [SLOTS * DIM + DENSE, *HIDDEN, 1]
        self._layers = []
        for before, after in itertools.pairwise(sizes):
            limit = (6.0 / (before + after)) ** 0.5
            weight = tf.Variable(tf.random.uniform([before, after], -limit, limit))
            self._layers.append((weight, tf.Variable(tf.zeros([after]))))
        dense = [variable for layer in self._layers for variable in layer]
        self._optimizer = Optimizer(tf, options.optimizer, [self._table, *dense])
        self._dense = dense
        self._loss = tf.Variable(0.0)

    def loss(self) -> float:
        return float(self._loss.numpy())

    def step(self, label: Any, dense: Any, ids: Any) -> None:
        tf = self._tf
        places = None
        if self._options.unique:
            ids, places = tf.unique(ids)
        rows = tf.nn.embedding_lookup(self._table, ids)
        weights = [variable.read_value() for variable in self._dense]
        with tf.GradientTape() as tape:
            tape.watch([rows, *weights])
            taken = rows if places is None else tf.gather(rows, places)
            x = tf.concat([tf.reshape(taken, [-1, SLOTS * DIM]), dense], axis=1)
            for index in range(len(self._layers)):
                x = tf.nn.bias_add(x @ weights[2 * index], weights[2 * index + 1])
                if index < len(HIDDEN):
                    x = tf.nn.relu(x)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=x)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [rows, *weights])
        self._optimizer.apply(self._table, tf.convert_to_tensor(gradients[0]), ids)
        for variable, gradient in zip(self._dense, gradients[1:], strict=True):
            self._optimizer.apply(variable, gradient)
        self._loss.assign(loss)


class Optimizer:
    """TensorFlow's fused update operators, each on its variable's device."""

    def __init__(self, tf: Any, name: str, variables: list[Any]) -> None:
        self._tf = tf
        self._name = name
        start = {"sgd": [], "adagrad": [0.1]}[name]
        self._state = {
            v.name + str(id(v)): [tf.Variable(tf.fill(v.shape, value)) for value in start]
            for v in variables
        }

    def apply(self, variable: Any, gradient: Any, ids: Any | None = None) -> None:
        tf, rate = self._tf, 0.001
        state = [part.handle for part in self._state[variable.name + str(id(variable))]]
        with tf.device(variable.device):
            if self._name == "sgd":
                if ids is None:
                    tf.raw_ops.ResourceApplyGradientDescent(
                        var=variable.handle, alpha=rate, delta=gradient
                    )
                else:
                    tf.raw_ops.ResourceScatterSub(
                        resource=variable.handle, indices=ids, updates=rate * gradient
                    )
            else:
                common = {"var": variable.handle, "accum": state[0], "lr": rate, "grad": gradient}
                if ids is None:
                    tf.raw_ops.ResourceApplyAdagradV2(**common, epsilon=1e-7)
                else:
                    tf.raw_ops.ResourceSparseApplyAdagradV2(**common, epsilon=1e-7, indices=ids)


if __name__ == "__main__":
    main()
