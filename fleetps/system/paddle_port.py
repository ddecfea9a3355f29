"""What a Paddle server answers over HTTP on the port of its RPC."""

import base64
import struct
from typing import Any

import httpx

# Commands of the engine (ps.proto). It refuses every one without a table, also one that needs none.
STOP = {"cmd_id": 12, "table_id": 0}
_PRINT_TABLE_STAT = 20
_SERVICE = "/PsService/service"


class PaddlePort:
    """`seconds`: how long one answer is waited for."""

    def __init__(self, endpoint: str, seconds: float) -> None:
        # No proxy from the environment: it must not see the cluster's traffic.
        self._http = httpx.Client(base_url=f"http://{endpoint}", timeout=seconds, trust_env=False)

    def answers(self) -> bool:
        """Whether the server serves."""
        try:
            return self._http.get("/health").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def stop(self) -> bool:
        """Ask for a graceful end; whether it was heard."""
        answer = self._ask(STOP)
        return answer is not None and answer.get("err_code") == 0

    def rows(self, table_id: int) -> int | None:
        """How many rows of a sparse table this server holds; None where it doesn't say."""
        answer = self._ask({"cmd_id": _PRINT_TABLE_STAT, "table_id": table_id})
        try:
            # Two 64-bit integers: all rows, and those of them whose factors have come into being.
            return int(struct.unpack("<qq", base64.b64decode((answer or {})["data"]))[0])
        except (LookupError, ValueError, TypeError, struct.error):
            return None

    def _ask(self, command: dict[str, int]) -> dict[str, Any] | None:
        try:
            answer = self._http.post(_SERVICE, json=command).json()
        except (httpx.HTTPError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None
