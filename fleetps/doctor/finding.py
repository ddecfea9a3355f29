"""One thing that was looked at."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fleet_config.errors import FleetError

Level: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, and the mend where that isn't part of the sentence."""

    level: Level
    subject: str
    says: str
    mend: str = ""


def ok(subject: str, says: str) -> Finding:
    """All is well."""
    return Finding("ok", subject, says)


def warn(subject: str, says: str, mend: str = "") -> Finding:
    """It works, but not as well as it could, or perhaps not later."""
    return Finding("warn", subject, says, mend)


def fail(subject: str, says: str, mend: str = "") -> Finding:
    """A job would not start, or not end well."""
    return Finding("fail", subject, says, mend)


@contextmanager
def failing(subject: str, findings: list[Finding]) -> Iterator[None]:
    """Turns an error that is for people into a finding; its sentence has the mend."""
    try:
        yield
    except FleetError as error:
        findings += [fail(subject, line) for line in str(error).splitlines()]
