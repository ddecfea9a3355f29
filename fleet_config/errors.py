"""The three ways in which a FleetPS command ends early, and its exit codes.

Each carries one sentence for people. They are turned into a message and an exit code in one
place, the entry points; nothing else catches them to print them.
"""

EXIT_OK = 0
EXIT_USER = 2
EXIT_TRY_AGAIN = 75
EXIT_STOPPED = 143


class FleetError(Exception):
    """The base of all errors that are for people: a sentence, not a traceback."""

    exit_code = EXIT_USER


class UserError(FleetError):
    """The user's mistake: the sentence names the file, line, key or variable and the mend."""

    exit_code = EXIT_USER


class TryAgain(FleetError):
    """Not the user's mistake: a peer, a port or a deadline; the same command may work later."""

    exit_code = EXIT_TRY_AGAIN


class Stopped(FleetError):
    """Stopped on request (a signal, or the coordinator's stop)."""

    exit_code = EXIT_STOPPED
