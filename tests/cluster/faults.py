"""What may happen to a job: how it is done, and what tells of it."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import psutil
from hurt_job import Fault, Watched
from running_job import kill, one, processes

SERVER, WORKER = "fleetps.training.server", "fleetps.training.worker"
AGENT = "fleetps.main"
COORDINATOR = "fleetps.coordinator"
Hurts: TypeAlias = Callable[[Watched], None]


def killed(words: str, env: str) -> Hurts:
    """By SIGKILL: the one such process."""
    return lambda _: kill(words, env=env)


def server(rank: int) -> psutil.Process:
    return one(SERVER, env=f"FLEETPS_RANK={rank}")


def worker(rank: int) -> psutil.Process:
    return one(WORKER, env=f"PADDLE_TRAINER_ID={rank}")


def worker_agent(rank: int) -> psutil.Process:
    return one(AGENT, env=f"WORKER_INDEX={rank}")


def agent_of_server_killed(rank: int) -> Hurts:
    def hurt(_: Watched) -> None:
        endpoints = worker_agent(0).environ()["SERVER_ENDPOINTS"].split(",")
        kill(AGENT, env=f"SERVER_ENDPOINT={endpoints[rank]}")

    return hurt


def all_servers_killed(_: Watched) -> None:
    victims = [process for process in processes(SERVER) if process.name() != "sh"]
    assert len(victims) >= 2
    for victim in victims:
        victim.kill()


def out_of_memory(rank: int) -> Hurts:
    """Whatever it allocates from now on is refused."""

    def hurt(_: Watched) -> None:
        victim = worker(rank)
        limit = victim.memory_info().rss
        resource.prlimit(victim.pid, resource.RLIMIT_AS, (limit, limit))

    return hurt


def stopped(*find: Callable[[], psutil.Process]) -> Hurts:
    """By SIGSTOP: they do nothing any more, but they are there."""

    def hurt(_: Watched) -> None:
        for process in [found() for found in find]:
            process.send_signal(signal.SIGSTOP)

    return hurt


def go_on() -> None:
    """Whoever was stopped does so no more."""
    for process in processes():
        if process.status() == psutil.STATUS_STOPPED:
            process.send_signal(signal.SIGCONT)


def one_after_the_other(*hurts: Hurts) -> Hurts:
    def hurt(job: Watched) -> None:
        for part in hurts:
            part(job)

    return hurt


_KILLED = "its Paddle process ended: killed by SIGKILL"


WORKER_KILLED = Fault(
    "a worker is killed",
    killed(WORKER, "PADDLE_TRAINER_ID=0"),
    "worker-lost",
    rf"worker 0: {_KILLED}.*; it is started again",
)
SERVER_KILLED = Fault(
    "a server is killed",
    killed(SERVER, "FLEETPS_RANK=1"),
    "generation",
    rf"server 1: {_KILLED}.*; generation \d begins",
)
WORKERS_DIE = [
    WORKER_KILLED,
    Fault(
        "its agent is killed",
        killed(AGENT, "WORKER_INDEX=1"),
        "worker-lost",
        r"worker 1: its agent \(process \d+\) ended: killed by SIGKILL.*; it is started again",
    ),
    Fault(
        "out of memory",
        out_of_memory(1),
        "worker-lost",
        r"worker 1: its Paddle process ended: (exit code 1 \(\w+Error|crashed)",
    ),
    Fault(
        "stopped, or hung in Paddle",
        stopped(lambda: worker(1)),
        "worker-lost",
        r"worker 1: .* it had shown no sign of life",
    ),
    Fault(
        "its machine stands still for longer than its lease, and goes on",
        stopped(lambda: worker(1), lambda: worker_agent(1)),
        "worker-lost",
        r"worker 1: not heard of for",
        heal=go_on,
    ),
]
SERVERS_DIE = [
    SERVER_KILLED,
    Fault(
        "its agent is killed",
        agent_of_server_killed(0),
        "generation",
        r"server 0: its agent \(process \d+\) ended: killed by SIGKILL",
    ),
    Fault("two at once", all_servers_killed, "generation", rf"server \d: {_KILLED}"),
    Fault(
        "stopped",
        stopped(lambda: server(1)),
        "generation",
        r"server 1: its Paddle process has not answered on .* for 6 s",
    ),
    Fault("the coordinator is killed", killed(COORDINATOR, ""), "restarted", "goes on"),
    Fault(
        "a server, and the coordinator while it sees to that",
        one_after_the_other(SERVER_KILLED.hurt, killed(COORDINATOR, "")),
        "generation",
        r"server 1: .*; generation \d begins",
    ),
    Fault(
        "the worker that saves a checkpoint",
        one_after_the_other(Watched.wait_for_save, WORKER_KILLED.hurt),
        "worker-lost",
        "worker 0: ",
    ),
]
GIVEN_UP = Fault(
    "a worker is killed, and nobody starts it again",
    killed(WORKER, "PADDLE_TRAINER_ID=1"),
    "worker-lost",
    rf"worker 1: {_KILLED}.*; the job goes on without it",
    workers=1,
)
IN_SYNC = Fault(
    "a worker of mode sync",
    killed(WORKER, "PADDLE_TRAINER_ID=1"),
    "generation",
    rf"worker 1: {_KILLED}.*; in mode sync the other workers can't go on without it; generation 1",
)


@dataclass(frozen=True)
class Life:
    """A job with these settings (see `write_job`), and what happens to it."""

    faults: Sequence[Fault]
    settings: Mapping[str, Any] = field(default_factory=dict)


LIVES = {
    # The other worker goes on while one comes back, so there must be enough to do.
    "workers": Life(WORKERS_DIE, {"epochs": 24}),
    "servers": Life(SERVERS_DIE, {"epochs": 16}),
    # The first server is lost before there is a checkpoint; who was given up is needed then.
    "bounded": Life(
        [GIVEN_UP, SERVER_KILLED], {"mode": "bounded", "restarts": 0, "checkpoints": False}
    ),
    "geo": Life(
        [WORKER_KILLED, SERVER_KILLED],
        {"mode": "{name: geo, steps: 16}", "task_rows": "auto"},  # which is 16 batches
    ),
    "sync": Life([IN_SYNC, SERVER_KILLED], {"mode": "sync"}),
}
