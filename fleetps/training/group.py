"""The workers' all-reduce group (Gloo), for mode `sync`.

Gloo itself waits for ever for a peer that is gone. Here forming the group has a deadline that names
the missing, an all-reduce gives up after `patience` seconds, and long before that the agent ends
this process because the coordinator has noticed the loss.
"""

from __future__ import annotations

import contextlib
import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import paddle

from fleet_config.endpoints import parse_endpoint
from fleet_config.errors import TryAgain
from fleetps import paddle_compat
from fleetps.coordinator.protocol import Coordinator
from fleetps.training import group_store

Tensor = Any

MEETING = "sync-group"
POLL_SECONDS = 0.05
# In every message of Gloo that tells of a connection.
_GLOO = "gloo/transport"


def all_reduce(values: Sequence[Tensor], workers: int) -> list[Tensor]:
    """Append ops that sum float32 tensors over all workers, as one message."""
    if workers == 1:
        return list(values)
    flat = paddle.concat([paddle.reshape(value, [-1]) for value in values])
    paddle_compat.append_all_reduce(flat)
    parts = paddle.split(flat, [math.prod(value.shape) for value in values])
    return [paddle.reshape(part, value.shape) for part, value in zip(parts, values, strict=True)]


def agreement(trained: Any, names: Sequence[str]) -> Any:
    """A program that gives every worker the values worker 0 has.

    Args:
        names: persistable variables of the program `trained`.
    """
    program = paddle.static.Program()
    for name in names:
        like = trained.global_block().var(name)
        paddle_compat.append_broadcast(
            program.global_block().create_var(
                name=name, shape=like.shape, dtype=like.dtype, persistable=True
            )
        )
    return program


@contextlib.contextmanager
def steps_of_all() -> Iterator[None]:
    """Around what all workers of a group do together.

    Raises:
        TryAgain: an all-reduce failed, because another worker is gone or hangs.
    """
    try:
        yield
    except (SystemError, RuntimeError) as error:
        if _GLOO not in str(error):
            raise
        words = next(line.strip() for line in str(error).splitlines() if _GLOO in line)
        raise TryAgain(f"lost another worker in the middle of a step ({words})") from error


def form(
    client: Coordinator,
    coordinator: str,
    instance: str,
    rank: int,
    workers: int,
    patience: float,
) -> None:
    """Connect to all other workers; every worker calls it, once in its life.

    Worker 0 starts a store through which the others find each other, and says where at the
    coordinator. Nobody enters Gloo before all are there: it holds the interpreter while it waits.

    Raises:
        TryAgain: somebody did not come within `patience` seconds, or Gloo could not connect.
    """
    if workers == 1:
        return
    store = _Store(_own_address(coordinator)) if rank == 0 else None
    try:
        client.arrive(instance, MEETING, store.endpoint if store else "")
        endpoint = _meet(client, rank, workers, patience)
        _connect(rank, workers, endpoint, patience)
    finally:
        if store is not None:
            store.close()


def _meet(client: Coordinator, rank: int, workers: int, patience: float) -> str:
    """Wait for everybody; the store's endpoint."""
    end = time.monotonic() + patience
    while True:
        arrived = client.arrived(MEETING)
        missing = sorted(set(range(workers)) - set(arrived.ranks))
        if not missing:
            return str(arrived.notes[0])
        if time.monotonic() > end:
            names = ", ".join(f"worker {other}" for other in missing)
            raise TryAgain(
                f"worker {rank} waited {patience:g} s for {names} to join the sync group "
                "(cluster.deadlines.barrier)"
            )
        time.sleep(POLL_SECONDS)


def _connect(rank: int, workers: int, endpoint: str, patience: float) -> None:
    try:
        paddle_compat.connect_workers(
            rank, workers, parse_endpoint(endpoint, "the group's store"), patience
        )
    except RuntimeError as error:
        raise TryAgain(f"worker {rank} could not connect to the other workers: {error}") from None


class _Store:
    """The key-value store as a process of its own: this one can't answer while it is in Gloo."""

    def __init__(self, host: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(Path(group_store.__file__)), host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()

    def close(self) -> None:
        """It ends when its standard input does, also if this process is killed."""
        self._process.communicate()


def _own_address(coordinator: str) -> str:
    """This host's address on the way to the coordinator, where other workers reach it too."""
    peer = parse_endpoint(coordinator, "the coordinator's address")
    family, kind, _, _, address = socket.getaddrinfo(*peer, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:  # a UDP "connection" sends nothing
        probe.connect(address)
        return str(probe.getsockname()[0])
