"""A line of any log of ours, or of Paddle's: when it was written, and what it says."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from datetime import datetime, timezone

LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "FATAL": logging.CRITICAL,
}
# Python's logging, ours and Paddle's: 2026-11-29 15:40:31,415 INFO worker-1: joined
_PYTHON = re.compile(
    r"^\[?(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)[,.](\d{3})\]? (.*)$",
    re.DOTALL,
)
# glog, in Paddle's C++: W1129 15:40:31.415926 4242 server.cc:52] no space left
_GLOG = re.compile(r"^([IWEF])(\d{4})?(\d\d)(\d\d) (\d\d:\d\d:\d\d)\.(\d{6}) +\d+ (.*)$", re.DOTALL)
_GLOG_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}
_OURS = re.compile(rf"^({'|'.join(LEVELS)}) (?:[a-z]+(?:-\d+)?: )?(.*)$", re.DOTALL)


@dataclass(frozen=True)
class Line:
    """`time`: seconds since 1970; `process`: such as worker-1, or worker-1/paddle."""

    time: float
    process: str
    text: str

    @property
    def role(self) -> str:
        return re.split("[-/]", self.process)[0]

    @property
    def rank(self) -> int | None:
        found = re.match(r"[a-z]+-(\d+)", self.process)
        return int(found[1]) if found else None

    def shown(self) -> str:
        """One line for people; the time is UTC, since processes may be anywhere."""
        when = datetime.fromtimestamp(self.time, timezone.utc).isoformat(timespec="milliseconds")
        return f"{when.removesuffix('+00:00')}Z {self.process:<15} {self.text}"


@dataclass(frozen=True)
class Parsed:
    """`time` None: the line has none, as the second one of a traceback."""

    time: float | None
    text: str
    role: str = ""  # where the line itself says whose it is


def parse(text: str, year: int) -> Parsed:
    """`year`: when it was written; glog leaves it out."""
    if text.startswith("{"):
        return _json(text)
    if found := _PYTHON.match(text):
        day, clock, milliseconds, rest = found.groups()
        ours = _OURS.match(rest)
        words = f"{ours[1]} {ours[2]}" if ours else rest
        return Parsed(_local(f"{day} {clock}.{milliseconds}"), words)
    if found := _GLOG.match(text):
        level, own, month, day, clock, fraction, rest = found.groups()
        when = _local(f"{own or year}-{month}-{day} {clock}.{fraction}")
        return Parsed(when, f"{_GLOG_LEVELS[level]} {rest}")
    return Parsed(None, text)


def _json(text: str) -> Parsed:
    try:
        record = json.loads(text)
        time = datetime.fromisoformat(record["time"]).timestamp()
        words = f"{str(record['level']).upper()} {record['message']}"
    except (ValueError, LookupError, TypeError):
        return Parsed(None, text)
    trace = f"\n{record['traceback']}" if "traceback" in record else ""
    paddle = "/paddle" if record.get("logger") == "paddle" else ""  # see observe.relay
    return Parsed(time, words + trace, f"{record.get('role', '')}{paddle}")


def _local(text: str) -> float | None:
    """Such lines have the time of the clock on the wall where they were written."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
