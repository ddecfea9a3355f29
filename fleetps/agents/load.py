"""What a member's Paddle process takes, for people: told with the heartbeats."""

import time
from collections.abc import Callable

from fleetps.agents.membership import Membership
from fleetps.system.memory import memory_limit, resident_memory

_SECONDS = 5.0


class Load:
    """`more`: what else is known of this process."""

    def __init__(
        self, membership: Membership, pid: int, more: Callable[[], dict[str, float]] = dict
    ) -> None:
        self._membership = membership
        self._pid = pid
        self._more = more
        self._told = 0.0

    def tell(self) -> None:
        """Look, if it is time to; call it as often as you like."""
        now = time.monotonic()
        if now - self._told < _SECONDS:
            return
        self._told = now
        used = resident_memory(self._pid)
        memory = {} if used is None else {"memory.used": used, "memory.limit": memory_limit()}
        self._membership.carries({**self._more(), **memory})
