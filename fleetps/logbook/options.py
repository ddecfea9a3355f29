"""The options of the two commands that show logs."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

_OPTIONS = (
    click.option("--role", help="Only of coordinator, server, worker, ...; as in the lines."),
    click.option("--rank", type=click.IntRange(0), help="Only of the server or worker with it."),
    click.option("--since", metavar="WHEN", help="15m ago (s, m, h, d), or an ISO 8601 time."),
    click.option("--grep", metavar="REGEX", default="", help="Only lines in which this is found."),
    click.option("--lines", type=click.IntRange(1), help="Of each log at most so many last lines."),
    click.option("--noise", is_flag=True, help="Also what Paddle always writes."),
    click.option("--follow", is_flag=True, help="Go on with what comes, until the job's end."),
)


def log_options(command: Command) -> Command:
    return reduce(lambda inner, option: option(inner), reversed(_OPTIONS), command)
