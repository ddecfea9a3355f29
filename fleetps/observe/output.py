"""Standard output and error may go away: a closed terminal, `| head`, a full disk.

What is shown is not the job: it goes on, or ends in its own way, without them.
"""

import os
from typing import IO, Any


def let_go(stream: IO[str]) -> None:
    """From now on what is written there goes nowhere; else Python's own exit would fail, too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class Lasting:
    """A stream that can be written to whatever becomes of its other end."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            let_go(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            let_go(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
