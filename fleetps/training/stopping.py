"""SIGTERM for a process whose main thread is inside Paddle, where no Python handler runs.

Import before Paddle: a signal that is blocked in the first thread is blocked in every thread made
later, so that one thread of ours receives it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from fleet_config.errors import EXIT_STOPPED

_on_stop: list[Callable[[], None]] = []


def on_stop(action: Callable[[], None]) -> None:
    """What to do at SIGTERM before the process exits 143; replaces what was set before."""
    _on_stop[:] = [action]


def _wait() -> None:
    signal.sigwait({signal.SIGTERM})
    try:
        for action in _on_stop:
            action()
    finally:  # whatever becomes of that: the coordinator may be gone
        os._exit(EXIT_STOPPED)


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
threading.Thread(target=_wait, name="sigterm", daemon=True).start()
