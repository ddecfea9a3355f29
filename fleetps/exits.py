"""From an exception to a message and an exit code: the one place where errors meet people."""

import logging
import sys
from collections.abc import Callable
from typing import IO, cast

import click

from fleet_config.errors import EXIT_OK, EXIT_STOPPED, FleetError, Stopped
from fleetps.observe.output import Lasting


def logged(error: FleetError, log: logging.Logger) -> int:
    """The exit code of a process whose sentences go into a log. To be stopped is no error."""
    log.log(logging.INFO if isinstance(error, Stopped) else logging.ERROR, "%s", error)
    return error.exit_code


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
            print(message, file=cast(IO[str], Lasting(sys.stderr)), flush=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):  # before anything had begun that hears of it
        print("stopped by Ctrl-C", file=cast(IO[str], Lasting(sys.stderr)), flush=True)
        return EXIT_STOPPED
