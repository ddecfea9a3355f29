"""When a dead process is started again, the same for agents and for who starts agents."""

EXIT_BUG = 1  # Python's own, for an exception that nobody caught
_FIRST_PAUSE_SECONDS = 1.0


def crashed(code: int | None) -> bool:
    """It was killed or crashed, so it could say nothing itself; None: it still runs."""
    return code is not None and (code < 0 or code == EXIT_BUG)


def pause_before(restart: int) -> float:
    """Seconds before a restart (from 0): each takes twice as long as the one before."""
    return float(_FIRST_PAUSE_SECONDS * 2**restart)
