"""How many containers a service has been scaled to: as many as its name has addresses."""

import socket
import time

from fleet_config.errors import TryAgain

_SECONDS = 60.0
# Those that are started together appear within less than this of each other.
_STEADY_SECONDS = 2.0
_POLL_SECONDS = 0.2


def count_addresses(variable: str, name: str) -> int:
    """Waits until the name of `variable` has addresses and none has come for two seconds.

    Raises:
        TryAgain: it has none, a minute later.
    """
    began = since = time.monotonic()
    seen: set[str] = set()
    while not seen or time.monotonic() - since < _STEADY_SECONDS:
        found = _addresses(name)
        if found != seen:
            seen, since = found, time.monotonic()
        if not seen and time.monotonic() - began > _SECONDS:
            raise TryAgain(
                f"{variable}={name}: that name has had no address for {_SECONDS:.0f} s; is "
                "anything of this name running, and in the same network?"
            )
        time.sleep(_POLL_SECONDS)
    return len(seen)


def _addresses(name: str) -> set[str]:
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(address[0]) for _, _, _, _, address in found}
