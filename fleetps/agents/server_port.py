"""A Paddle server seen from outside: its port also speaks HTTP."""

import time

from fleet_config.errors import TryAgain
from fleetps.system.paddle_port import PaddlePort

_ANSWER_SECONDS = 1.0
# How often to ask: while it starts, and later.
_STARTING_SECONDS = 0.2
_SERVING_SECONDS = 5.0


class ServerPort:
    """While it serves, a server can run no Python; this asks its port whether all is well."""

    def __init__(self, endpoint: str, start_seconds: float, silent_seconds: float) -> None:
        self._endpoint = endpoint
        self._start_seconds = start_seconds
        self._silent_seconds = silent_seconds
        self._heard = time.monotonic()
        self._asked = 0.0
        self._serving = False
        self._port = PaddlePort(endpoint, _ANSWER_SECONDS)

    def check(self) -> bool:
        """Ask, if it is time to. True when it serves for the first time; TryAgain when overdue."""
        now = time.monotonic()
        if now - self._asked < (_SERVING_SECONDS if self._serving else _STARTING_SECONDS):
            return False
        self._asked = now
        if self._port.answers():
            self._heard = time.monotonic()
            first, self._serving = not self._serving, True
            return first
        self._check_deadline(now - self._heard)
        return False

    def ask_to_stop(self) -> bool:
        """Ask for a graceful end; whether it was heard."""
        return self._port.stop()

    def silence(self) -> float:
        """Seconds for which a server that served has not answered; 0: it did when last asked."""
        quiet = self._serving and self._asked > self._heard
        return time.monotonic() - self._heard if quiet else 0.0

    def rows(self, table_id: int) -> int | None:
        """How many rows of a sparse table this server holds; None where it doesn't say."""
        return self._port.rows(table_id)

    def _check_deadline(self, silence: float) -> None:
        if not self._serving and silence > self._start_seconds:
            raise TryAgain(
                f"its Paddle process does not answer on {self._endpoint} {self._start_seconds:g} s "
                "after its start (cluster.deadlines.server_start)"
            )
        if self._serving and silence > self._silent_seconds:
            raise TryAgain(
                f"its Paddle process has not answered on {self._endpoint} for "
                f"{self._silent_seconds:g} s (cluster.deadlines.step)"
            )
