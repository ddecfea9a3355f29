"""A file that one process holds, and in which the others read which process that is."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


@contextmanager
def held(file: Path, refusal: Callable[[str], Exception]) -> Iterator[None]:
    """Inside, it is this process's; the kernel gives it back when the process ends, however.

    Raises:
        refusal: another process holds it; gets that one's id, or "unknown".
        OSError: it can't be written.
    """
    # With a buffer, what found no room on the disk would be written again when it is closed.
    with file.open("ab+", buffering=0) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise refusal(lock.read().decode("ascii").strip() or "unknown") from None
        lock.truncate(0)
        lock.write(str(os.getpid()).encode("ascii"))
        yield


def holder(file: Path) -> psutil.Process | None:
    """Who holds it, or has held it last and still lives on this machine.

    The lock is not tried: for that moment it would keep others away.
    """
    try:
        process = psutil.Process(int(file.read_text(encoding="ascii")))
        return process if process.status() != psutil.STATUS_ZOMBIE else None
    except (OSError, ValueError, psutil.Error):
        return None
