"""SIGTERM, SIGINT and SIGHUP as a request to stop that the main thread looks at.

While nothing is running that must be ended with care, a signal interrupts whatever the main thread
waits for (`interrupting`); later it only sets a flag.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fleet_config.errors import Stopped

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Use as a context manager, in the main thread."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._interrupts = 0
        self._raises = False

    def __enter__(self) -> "StopRequest":
        # What nohup or a shell's & made deaf stays so.
        heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._on_signal) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def enough(self) -> None:
        """How this process ends is decided: from now on no signal changes its exit code.

        Paddle's newer launcher sends SIGTERM three times, to processes that are ending too.
        """
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        self._before.clear()

    @property
    def reason(self) -> str:
        """For the sentence "... was asked to stop by SIGTERM"."""
        if self.signal is None:
            return ""
        return "Ctrl-C" if self.signal == signal.SIGINT else self.signal.name

    def hurry(self) -> bool:
        """Whether somebody at a terminal pressed Ctrl-C again."""
        return self._interrupts > 1

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside, a signal raises Stopped at once, in the middle of any wait."""
        self._raises = True
        try:
            if self.signal is not None:
                raise Stopped(f"stopped by {self.reason}")
            yield
        finally:
            self._raises = False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number)
        self._interrupts += number == signal.SIGINT
        if self._raises:
            # Once: a second signal must not break the clean-up that the first one began.
            self._raises = False
            raise Stopped(f"stopped by {self.reason}")
