"""A parallel map over a stream, in order and with bounded memory."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def ordered_map(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield function(item) for each item, in order, computed by one thread per core.

    Threads do, because Arrow and numpy release the interpreter lock. Only a few items are in
    flight, so a stream of any length passes through.
    """
    threads = available_cores()
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
