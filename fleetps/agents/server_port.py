"""A Paddle server seen from outside: its port also speaks HTTP."""

import base64
import struct
import time

import httpx

from fleet_config.errors import TryAgain

# PS_STOP_SERVER. Paddle refuses every command without a table, also one that needs none.
_STOP = {"cmd_id": 12, "table_id": 0}
_PRINT_TABLE_STAT = 20
_SERVICE = "/PsService/service"
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
        # No proxy from the environment: the server is on this machine.
        self._http = httpx.Client(
            base_url=f"http://{endpoint}", timeout=_ANSWER_SECONDS, trust_env=False
        )

    def check(self) -> bool:
        """Ask, if it is time to. True when it serves for the first time; TryAgain when overdue."""
        now = time.monotonic()
        if now - self._asked < (_SERVING_SECONDS if self._serving else _STARTING_SECONDS):
            return False
        self._asked = now
        if self._answers():
            self._heard = time.monotonic()
            first, self._serving = not self._serving, True
            return first
        self._check_deadline(now - self._heard)
        return False

    def ask_to_stop(self) -> bool:
        """Ask for a graceful end; whether it was heard."""
        try:
            answer = self._http.post(_SERVICE, json=_STOP)
            return bool(answer.json()["err_code"] == 0)
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return False

    def rows(self, table_id: int) -> int | None:
        """How many rows of a sparse table this server holds; None where it doesn't say."""
        command = {"cmd_id": _PRINT_TABLE_STAT, "table_id": table_id}
        try:
            answer = self._http.post(_SERVICE, json=command).json()
            # Two 64-bit integers: all rows, and those of them whose factors have come into being.
            rows, _ = struct.unpack("<qq", base64.b64decode(answer["data"]))
        except (httpx.HTTPError, ValueError, LookupError, TypeError, struct.error):
            return None
        return int(rows)

    def _answers(self) -> bool:
        try:
            return self._http.get("/health").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

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
