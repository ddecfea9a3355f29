"""Which lines are wanted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone

from pydantic import BaseModel, ConfigDict

from fleet_config.errors import UserError
from fleetps.logbook.line import Line

_AGO = re.compile(r"^(\d+(?:\.\d+)?)(s|m|h|d)$")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Query(BaseModel):
    """Attributes:
    since: seconds since 1970.
    grep: a regular expression that is to be found in a line's text.
    lines: at most so many of the last ones of each log; None: all.
    noise: also what Paddle writes whether or not anything is wrong.
    follow: go on with what comes.
    """

    model_config = ConfigDict(frozen=True)

    role: str | None = None
    rank: int | None = None
    since: float | None = None
    grep: str = ""
    lines: int | None = None
    noise: bool = False
    follow: bool = False

    def wants(self, process: str) -> bool:
        line = Line(0, process, "")
        return self.role in (None, line.role) and self.rank in (None, line.rank)

    def select(self, lines: Iterable[Line]) -> Iterator[Line]:
        pattern = re.compile(self.grep)
        for line in lines:
            if self.since is not None and line.time < self.since:
                continue
            if self.wants(line.process) and pattern.search(line.text):
                yield line


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"--grep {pattern}: not a regular expression: {error}") from None
    return pattern


def _moment(text: str, now: datetime) -> float:
    """`15m` ago, or a time of day or date in ISO 8601; without a zone it is the local one."""
    if found := _AGO.match(text):
        return (now - timedelta(**{_UNITS[found[2]]: float(found[1])})).timestamp()
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise UserError(
            f"--since {text}: give how long ago, such as 90s, 15m, 2h or 1d, or a time such as "
            f"{now.astimezone(timezone.utc).isoformat(timespec='seconds')}"
        ) from None


def query_of(
    *,
    role: str | None,
    rank: int | None,
    since: str | None,
    grep: str,
    lines: int | None,
    noise: bool,
    follow: bool,
) -> Query:
    """What the options (see `options`) ask for; UserError where one makes no sense."""
    now = datetime.now(timezone.utc)
    return Query(
        role=role,
        rank=rank,
        since=_moment(since, now) if since else None,
        grep=_check_pattern(grep),
        lines=lines,
        noise=noise,
        follow=follow,
    )
