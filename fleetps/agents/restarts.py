"""When a dead process is started again, the same for agents and for who starts agents."""

import time

EXIT_BUG = 1  # Python's own, for an exception that nobody caught
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
# What has no tasks by which it could show that it works shows it by living so long.
_STEADY_SECONDS = 60.0


def crashed(code: int | None) -> bool:
    """It was killed or crashed, so it could say nothing itself; None: it still runs."""
    return code is not None and (code < 0 or code == EXIT_BUG)


class Restarts:
    """Of one process: at most so many in a row.

    A long life has many accidents. What is given up is only what dies again and again without
    having been of any use in between: without having done a task, or having lived for a minute.
    """

    def __init__(self, most: int) -> None:
        self.in_a_row = 0
        self._most = most
        self._began = time.monotonic()

    @property
    def left(self) -> bool:
        return self.in_a_row < self._most

    def began(self) -> None:
        """It has just been started, for the first time or again."""
        self._began = time.monotonic()

    def died(self, *, useful: bool | None = None) -> None:
        """`useful`: whether it had done a task; None: it has none, so its age is what counts."""
        if useful is None:
            useful = time.monotonic() - self._began >= _STEADY_SECONDS
        if useful:
            self.in_a_row = 0

    def pause(self) -> float:
        """Seconds to wait before the next one: twice as long as before the last, 30 at most."""
        return float(min(_FIRST_PAUSE_SECONDS * 2**self.in_a_row, _LONGEST_PAUSE_SECONDS))

    def again(self) -> None:
        """It is about to be started again."""
        self.in_a_row += 1
