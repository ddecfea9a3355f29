"""One process of the throughput benchmark: `python throughput_child.py server|worker|local` in a
directory with child.json. Rows are loaded into memory once; then passes over them are timed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import paddle
from paddle.distributed import fleet
from paddle.static.nn.common import PyFuncRegistry

from fleet_config.job import Job
from fleetps import paddle_compat
from fleetps.coordinator.messages import Arrived, Rendezvous, Slice, Task
from fleetps.data.dataset import Dataset, load_dataset
from fleetps.training import build, child, server
from fleetps.training.engines import Engine, LocalEngine, ServerEngine
from fleetps.training.feed import Feed
from fleetps.training.loss_watch import LossWatch
from fleetps.training.program import build_network
from fleetps.training.step_hook import StepHook

SPLIT = "train"


class FileBarrier:
    """The calls of the coordinator that the engine makes, by files in the parent directory."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def rendezvous(self, _instance: str) -> Rendezvous:
        """The benchmark starts workers when the servers answer."""
        return Rendezvous(
            complete=True, servers=(), workers=0, missing=(), waited=0.0, generation=0, learners=1
        )

    def arrive(self, _instance: str, name: str, note: str = "") -> None:
        file = Path("..") / f"arrived-{name}-{self._rank}"
        file.with_suffix(".new").write_text(note)
        file.with_suffix(".new").rename(file)

    def arrived(self, name: str) -> Arrived:
        files = [f for f in Path("..").glob(f"arrived-{name}-*") if not f.suffix]
        notes = {int(file.name.rpartition("-")[2]): file.read_text() for file in files}
        return Arrived(ranks=tuple(sorted(notes)), notes=notes)


class NaiveEngine:
    """Paddle as its tutorials have it: Adam on the servers, its defaults for tables."""

    def build(self, job: Job, dataset: Dataset, *_hooks: build.Hook) -> build.Programs:
        loss, feeds, startup = naive_program(job, dataset)
        paddle.static.Executor(paddle.CPUPlace()).run(startup)
        fleet.init_worker()
        train = {"async": loss.block.program}
        return build.Programs(train, {}, None, None, startup, feeds, [], [], "")

    def flush(self) -> None:
        paddle_compat.flush()


def naive_program(job: Job, dataset: Dataset) -> tuple[Any, list[Any], Any]:
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        network = build_network(job, dataset, tutorial_lookup)
        loss = paddle.mean(network.loss_sum)
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(0.001), strategy)
        optimizer.minimize(loss)
        return loss, network.feeds, paddle.static.default_startup_program()


def tutorial_lookup(table: str, dim: int, ids: list[Any]) -> list[Any]:
    size, name = [1 << 20, dim], paddle.ParamAttr(name=table)
    return [paddle.static.nn.sparse_embedding(part, size=size, param_attr=name) for part in ids]


def serve(settings: dict[str, Any]) -> None:
    if not settings["naive"]:
        server.serve()
        return
    paddle.enable_static()
    job = Job.model_validate_json(Path("job.json").read_text())
    naive_program(job, load_dataset(job.data.path))
    fleet.init_server()
    fleet.run_server()


def measure(settings: dict[str, Any]) -> None:
    """Writes the start and end of each pass (seconds of the wall clock) to passes.json."""
    job, dataset = child.load(settings["rank"])
    hook = StepHook(no_wait, LossWatch(None), stop)
    engine = engine_of(settings)
    programs = engine.build(job, dataset, hook, no_scores)
    program = programs.train[settings["mode"]]
    turns = [program]
    if settings["hook"] == "in turn":
        turns += [paddle_compat.copy_program(program) for _ in range(2)]
        call_nothing(turns[1])
        paddle_compat.remove_ops(turns[2], ["py_func"])
    if programs.learning_rate:
        hook.begin(
            "the benchmark", partial(constant_rate, job), programs.learning_rate, padded=False
        )
        engine.enter(settings["mode"])
    feed = Feed(programs.feeds, dataset.columns, job.cluster.threads, Path("slices").absolute())
    executor = paddle.static.Executor(paddle.CPUPlace())
    passes = []
    task = task_of(dataset, settings)
    loading = feed.start(task(0), job.data.batch_size)
    data = loading.wait()
    for number in range(settings["passes"] + len(turns)):  # the first of each is a warm-up
        wait_for_all(number, settings)
        start = time.time()
        if settings["reading"]:
            ahead = feed.start(task(number + 1), job.data.batch_size)
        program = turns[number % len(turns)]
        executor.train_from_dataset(program, data, thread=job.cluster.threads)
        if settings["reading"]:
            loading.release()
            loading, data = ahead, ahead.wait()
        passes.append([start, time.time()])
    results = {"rows": task(0).rows, "passes": passes[len(turns) :]}
    Path("passes.json").write_text(json.dumps(results))
    wait_for_all(len(passes), settings)


def call_nothing(program: Any) -> None:
    """Let the step hook's operator call a function that does nothing."""
    nothing = PyFuncRegistry(lambda _first, _second: None)
    (op,) = (op for op in program.global_block().ops if op.type == "py_func")
    op._set_attr("forward_callable_id", nothing.id)


def task_of(dataset: Dataset, settings: dict[str, Any]) -> Callable[[int], Task]:
    """A task of the rows of this worker by its number."""
    shards = dataset.split(SPLIT).shards[settings["rank"] :: settings["workers"]]
    slices = [Slice(shard=str(dataset.shard_path(s)), start=0, rows=s.rows) for s in shards]

    def make(number: int) -> Task:
        return Task(
            id=number,
            generation=0,
            epoch=number,
            split=SPLIT,
            training=True,
            slices=tuple(slices),
            rows=sum(part.rows for part in slices),
            rows_before=0,
            shuffle_seed=number if settings["reading"] else None,
        )

    return make


def no_wait(_ending: Callable[[], bool]) -> None:
    """No other worker is waited for."""


def stop(sentence: str) -> NoReturn:
    sys.exit(sentence)


def no_scores(_logit: Any, _label: Any) -> None:
    """Nothing is evaluated here."""


def constant_rate(job: Job, _step: int) -> float:
    return job.optimizer.learning_rate


def engine_of(settings: dict[str, Any]) -> Engine:
    if settings["local"]:
        return LocalEngine()
    if settings["naive"]:
        return NaiveEngine()
    return ServerEngine(FileBarrier(settings["rank"]), "benchmark", settings["rank"])


def wait_for_all(number: int, settings: dict[str, Any]) -> None:
    here = Path("..")
    (here / f"pass-{number}-{settings['rank']}").touch()
    while len(list(here.glob(f"pass-{number}-*"))) < settings["workers"]:
        time.sleep(0.001)


if __name__ == "__main__":
    options = json.loads(Path("child.json").read_text())
    child.run(lambda: serve(options) if sys.argv[1] == "server" else measure(options))
