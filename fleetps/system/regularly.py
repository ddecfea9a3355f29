"""Something that is done again and again, beside what the process does."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def regularly(action: Callable[[], object], seconds: float, name: str) -> Iterator[None]:
    """Inside, `action` is called every so many seconds, in a thread with a name; and at the end."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            action()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        action()
