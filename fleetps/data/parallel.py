"""A parallel map over a stream, in order and with bounded memory."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

# Beyond that they would wait for the one that compresses and writes, and only take memory.
_MOST_THREADS = 4

T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def ordered_map(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield function(item) for each item, in order, computed by a thread per core, up to 4.

    Threads do, because Arrow and numpy release the interpreter lock. Only a few items are in
    flight, so a stream of any length passes through.
    """
    threads = min(available_cores(), _MOST_THREADS)
    pool = ThreadPoolExecutor(threads)
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > threads + 1:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
