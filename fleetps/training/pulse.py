"""Signs of life that the agent can see from outside, and an end for a step that never ends.

The agent ends a worker process that has given no sign for `cluster.deadlines.step` seconds,
whatever it hangs in; a step that takes longer is ended from inside, where the stacks of all threads
can be shown. Paddle holds the interpreter while it saves, loads or flushes, so that no sign can be
given then: `silence` says how long that may take.
"""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet_config.errors import TryAgain
from fleet_config.sections import Deadlines
from fleetps.system.ports import Server, unreachable
from fleetps.system.pulse_file import PULSE_FILE
from fleetps.training import child

_LONG_SECONDS = 5.0  # for a step
_AGAIN_SECONDS = 10.0  # for one that can go on now
_SERVERS = "PADDLE_PSERVERS_IP_PORT_LIST"
# Of what the coordinator waits, which would end the job: a process that hangs is ended before that.
_SHARE = 0.9


class Pulse:
    """Of a worker process. The agent has given it time to start: the first sign ends that."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._file = Path(PULSE_FILE)
        self._servers = [one for one in os.environ.get(_SERVERS, "").split(",") if one]
        self._silent_until = 0.0
        self._task = ""
        self._alone = True
        # When the last step was made, or the task begun; math.inf: none is due.
        self._since = math.inf
        self._step_due = math.inf
        self._looked = -math.inf
        self.lost: Server | None = None  # that can't be reached, if a step takes long
        self._back: Server | None = None  # that could not, during this step, but now can

    def beat(self) -> None:
        """Give a sign; about once a second, by a thread that has nothing else to do."""
        due = max(time.time(), self._silent_until)
        self._file.touch()
        os.utime(self._file, (due, due))

    @contextmanager
    def silence(self, seconds: float) -> Iterator[None]:
        """Inside, no sign is due for a while, as the coordinator waits `seconds` at most."""
        self._silent_until = time.time() + _SHARE * seconds - self._deadlines.step
        self.beat()
        try:
            yield
        finally:
            self._silent_until = 0.0
            self.beat()

    @contextmanager
    def task(self, name: str, *, alone: bool) -> Iterator[None]:
        """Inside, steps are due; the first one may take longer.

        `alone`: no other worker makes the same steps, so that one that is late is this one's fault.
        """
        self._task, self._alone = name, alone
        self._due_in(self._deadlines.first_step)
        try:
            yield
        finally:
            self._since = self._step_due = math.inf

    def step(self) -> None:
        """A step was made, or is waited with on purpose."""
        self._due_in(self._deadlines.step)

    def _due_in(self, seconds: float) -> None:
        self._since, self._back = time.monotonic(), None
        # In a group the coordinator knows better whose fault it is.
        self._step_due = self._since + seconds if self._alone else math.inf

    def check(self) -> None:
        """Look for a server that can't be reached, if a step takes long; about once a second.

        Ends the process, with the stacks of its threads in the log, if a step is overdue.
        """
        now = time.monotonic()
        if now - self._since < _LONG_SECONDS:
            self.lost = None
        elif now - self._looked >= _LONG_SECONDS:
            self._look(now)
        if now < self._step_due:
            return
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        child.leave(
            TryAgain(
                f"made no step in {self._task} {self._limit()}; the stacks of its threads are in "
                "its log"
            )
        )

    def _look(self, now: float) -> None:
        before, self._looked = self.lost, now
        self.lost = unreachable(self._servers)
        if before and not self.lost:
            # A broken-off call is sent again after twice as long each time: a new process is
            # connected sooner.
            self._back, self._step_due = before, min(self._step_due, now + _AGAIN_SECONDS)

    def _limit(self) -> str:
        if self._back:
            return f"though {self._back} can be reached again"
        lost = self.lost or unreachable(self._servers)
        reach = f"; it can't reach {lost}" if lost else ""
        return (
            f"within cluster.deadlines.step ({self._deadlines.step:g} s; the first one: "
            f"first_step, {self._deadlines.first_step:g} s){reach}"
        )
