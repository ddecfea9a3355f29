"""From an exception to a message and an exit code: the one place where errors meet people."""

import sys
from collections.abc import Callable

import click

from fleet_config.errors import EXIT_OK, EXIT_STOPPED, FleetError


def exit_code_of(run: Callable[[], int | None]) -> int:
    """Runs a command and returns its exit code.

    Errors that are for people become their sentence on stderr. Any other exception is a bug of
    ours and keeps its traceback.
    """
    try:
        return run() or EXIT_OK
    except FleetError as error:
        message = str(error)
        if message:
            print(message, file=sys.stderr)  # noqa: T201  the command line is for people
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return EXIT_STOPPED
