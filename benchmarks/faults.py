"""What is done to a job in the soak, and the plan of it."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil
from launched import AGENT, COORDINATOR, SERVER, WORKER, Job

SHORT, LONG = 5.0, 15.0  # seconds for which something is stopped; the job's heartbeat is 2 s


@dataclass(frozen=True)
class Fault:
    """One thing to do, `at` seconds after the beginning."""

    at: float
    kind: str
    rank: int


def plan(seed: int, seconds: float, every: tuple[float, float], ranks: int) -> list[Fault]:
    """All kinds once, in any order; then all again; those of FIRST_HALF only in the first half."""
    source = random.Random(seed)
    found: list[Fault] = []
    at = 0.0
    for kind in _endlessly(source):
        if kind in FIRST_HALF and at > seconds / 2:
            continue
        at += source.uniform(*every)
        if at > seconds:
            return found
        rank = ranks - 1 if kind in SPARES_RANK_0 else source.randrange(ranks)
        found.append(Fault(at, kind, rank))
    return found


def _endlessly(source: random.Random) -> Iterator[str]:
    while True:
        kinds = list(KINDS)
        source.shuffle(kinds)
        yield from kinds


def worker_process(job: Job, rank: int) -> list[psutil.Process]:
    return job.processes(WORKER, env=f"PADDLE_TRAINER_ID={rank}")


def server_process(job: Job, rank: int) -> list[psutil.Process]:
    return job.processes(SERVER, env=f"FLEETPS_RANK={rank}")


def worker_agent(job: Job, rank: int) -> list[psutil.Process]:
    return job.processes(AGENT, env=f"WORKER_INDEX={rank}")


def server_agent(job: Job, rank: int) -> list[psutil.Process]:
    found = []
    for agent in job.processes(AGENT, env="ROLE=SERVER"):
        with suppress(psutil.Error):
            environ = agent.environ()
            endpoints = environ["SERVER_ENDPOINTS"].split(",")
            if endpoints.index(environ["SERVER_ENDPOINT"]) == rank:
                found.append(agent)
    return found


def coordinator(job: Job, _rank: int) -> list[psutil.Process]:
    return job.processes(COORDINATOR)


Victims = Callable[[Job, int], list[psutil.Process]]


def _send(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


def _killed(*whom: Victims) -> Callable[[Job, int], None]:
    def act(job: Job, rank: int) -> None:
        _send([one for victims in whom for one in victims(job, rank)], signal.SIGKILL)

    return act


def _replaced(number: signal.Signals, *whom: Victims) -> Callable[[Job, int], None]:
    """For agents."""

    def act(job: Job, rank: int) -> None:
        for victims in whom:
            for agent in victims(job, rank):
                with suppress(psutil.Error):
                    job.replace(agent, number)

    return act


def _stopped(seconds: float | None, *whom: Victims) -> Callable[[Job, int], None]:
    """None: for ever, so that somebody has to end it."""

    def act(job: Job, rank: int) -> None:
        stopped = [one for victims in whom for one in victims(job, rank)]
        _send(stopped, signal.SIGSTOP)
        if seconds is not None:
            time.sleep(seconds)
            _send(stopped, signal.SIGCONT)

    return act


def _coordinator_and_worker(job: Job, rank: int) -> None:
    _send(coordinator(job, rank), signal.SIGKILL)
    _replaced(signal.SIGKILL, worker_agent)(job, rank)


def _everything(job: Job, _rank: int) -> None:
    job.kill_all()


KINDS: dict[str, Callable[[Job, int], None]] = {
    "worker's process killed": _killed(worker_process),
    "worker's agent killed": _replaced(signal.SIGKILL, worker_agent),
    "worker asked to leave, another comes": _replaced(signal.SIGTERM, worker_agent),
    "worker stopped for 5 s": _stopped(SHORT, worker_agent, worker_process),
    "worker stopped for 15 s": _stopped(LONG, worker_agent, worker_process),
    "worker's process hangs": _stopped(None, worker_process),
    "server's process killed": _killed(server_process),
    "server's agent killed": _replaced(signal.SIGKILL, server_agent),
    "server asked to leave": _replaced(signal.SIGTERM, server_agent),
    "server stopped for 5 s": _stopped(SHORT, server_agent, server_process),
    "server stopped for 15 s": _stopped(LONG, server_agent, server_process),
    "server's process hangs": _stopped(None, server_process),
    "coordinator killed": _killed(coordinator),
    "coordinator stopped for 5 s": _stopped(SHORT, coordinator),
    "coordinator stopped for 15 s": _stopped(LONG, coordinator),
    "a server's and a worker's process killed": _killed(server_process, worker_process),
    "coordinator and a worker's agent killed": _coordinator_and_worker,
    "everything killed, and started again": _everything,
}
# These end the coordinator, whose memory is watched in the second half.
FIRST_HALF = {
    "coordinator killed",
    "coordinator and a worker's agent killed",
    "everything killed, and started again",
}
# So that one agent of each kind lives as long as the job.
SPARES_RANK_0 = {
    "worker asked to leave, another comes",
    "server asked to leave",
    "worker's agent killed",
    "server's agent killed",
    "coordinator and a worker's agent killed",
}
