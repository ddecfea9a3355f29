"""What keeps tests out of each other's way: the mark of a test's processes, and ports.

The ports are neither from the range out of which the system gives some of its own accord nor from
that of `fleetps launch`: one of those may be somebody else's in the moment before a test's own
process takes it. The processes of pytest-xdist have a part of the ports each, and a test may take a
port + 1000 as well.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

# Inherited by everything that a test starts, however far down, and so a mark to find it by.
MARK = "FLEETPS_TEST_MARK"

_FIRST, _PARTS, _EACH = 10_000, 5, 1_000


def _all() -> itertools.cycle[int]:
    """Beginning anywhere, for the sake of other runs on the same machine."""
    process = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    start = _FIRST + int(process) % _PARTS * 2 * _EACH
    first = random.SystemRandom().randrange(_EACH)
    return itertools.cycle(start + (first + n) % _EACH for n in range(_EACH))


_ports = _all()


def free_port() -> int:
    """A port that nothing uses; the tests of this process get it again only when all were given."""
    for port in _ports:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
