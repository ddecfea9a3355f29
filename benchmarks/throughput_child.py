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
from typing import Any

import paddle
from paddle.distributed import fleet

from fleet_config.job import Job
from fleetps import paddle_compat
from fleetps.coordinator.messages import Arrived, Rendezvous, Slice, Task
from fleetps.data.dataset import Dataset, load_dataset
from fleetps.training import build, child, server, sparse
from fleetps.training.engines import Engine, LocalEngine, ServerEngine
from fleetps.training.feed import Feed
from fleetps.training.program import build_network
from fleetps.training.step_hook import StepHook

SPLIT = "train"


class FileBarrier:
    """The calls of the coordinator that the engine makes, by files in the parent directory."""

    def rendezvous(self, _instance: str) -> Rendezvous:
        """The benchmark starts workers when the servers answer."""
        return Rendezvous(
            complete=True, servers=(), workers=0, missing=(), waited=0.0, generation=0
        )

    def arrive(self, _instance: str, name: str) -> None:
        (Path("..") / name).touch()

    def arrived(self, name: str) -> Arrived:
        return Arrived(ranks=(0,) if (Path("..") / name).exists() else ())


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
        network = build_network(job, dataset, sparse.lookup_on_servers)
        loss = paddle.mean(network.loss_sum)
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(0.001), strategy)
        optimizer.minimize(loss)
        return loss, network.feeds, paddle.static.default_startup_program()


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
    hook = StepHook(no_wait)
    engine = engine_of(settings)
    programs = engine.build(job, dataset, hook, no_scores)
    shards = dataset.split(SPLIT).shards[settings["rank"] :: settings["workers"]]
    slices = [Slice(shard=str(dataset.shard_path(s)), start=0, rows=s.rows) for s in shards]
    rows = sum(part.rows for part in slices)
    task = Task(
        id=0,
        generation=0,
        epoch=0,
        split=SPLIT,
        training=True,
        slices=tuple(slices),
        rows=rows,
        rows_before=0,
        shuffle_seed=None,
    )
    loading = Feed(
        programs.feeds, dataset.columns, job.cluster.threads, Path("slices").absolute()
    ).start(task, job.data.batch_size)
    data = loading.wait()
    executor = paddle.static.Executor(paddle.CPUPlace())
    if programs.learning_rate:
        hook.begin("the benchmark", partial(constant_rate, job), programs.learning_rate)
    passes = []
    for number in range(settings["passes"] + 1):  # the first is a warm-up
        wait_for_all(number, settings)
        start = time.time()
        executor.train_from_dataset(programs.train["async"], data, thread=job.cluster.threads)
        engine.flush()
        passes.append([start, time.time()])
    Path("passes.json").write_text(json.dumps({"rows": rows, "passes": passes[1:]}))
    wait_for_all(settings["passes"] + 1, settings)


def no_wait(_ending: Callable[[], bool]) -> None:
    """No other worker is waited for."""


def no_scores(_logit: Any, _label: Any) -> None:
    """Nothing is evaluated here."""


def constant_rate(job: Job, _step: int) -> float:
    return job.optimizer.learning_rate


def engine_of(settings: dict[str, Any]) -> Engine:
    if settings["local"]:
        return LocalEngine()
    if settings["naive"]:
        return NaiveEngine()
    return ServerEngine(FileBarrier(), "benchmark", settings["rank"])


def wait_for_all(number: int, settings: dict[str, Any]) -> None:
    here = Path("..")
    (here / f"pass-{number}-{settings['rank']}").touch()
    while len(list(here.glob(f"pass-{number}-*"))) < settings["workers"]:
        time.sleep(0.001)


if __name__ == "__main__":
    options = json.loads(Path("child.json").read_text())
    child.run(lambda: serve(options) if sys.argv[1] == "server" else measure(options))
