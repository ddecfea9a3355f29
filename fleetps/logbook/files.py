"""The logs in a run directory, as they are and as they grow."""

from __future__ import annotations

import heapq
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from itertools import chain
from operator import attrgetter
from pathlib import Path

from fleetps.logbook.line import Line, parse
from fleetps.logbook.query import Query
from fleetps.system.growing import GrowingFile
from fleetps.system.logtail import is_noise

TIME = attrgetter("time")
_POLL_SECONDS = 0.3
_NAME = re.compile(r"^([a-z]+(?:-\d+)?)(\.agent)?\.log$")
# Their processes have two logs: the agent's, and that of the Paddle process.
_WITH_PADDLE = re.compile(r"^(server|worker|local)-\d+$")


def read(
    directory: Path,
    query: Query,
    names: Collection[str] | None = None,
    over: Callable[[], bool] = lambda: True,
) -> Iterator[Line]:
    """The lines of all logs in the order of time; with `query.follow` until `over`.

    `names`: of processes; None: all.
    """
    book = _Book(directory, query, names)
    yield from heapq.merge(*(log.whole() for log in book.logs()), key=TIME)
    while query.follow:
        last = over()
        yield from sorted((line for log in book.logs() for line in log.new()), key=TIME)
        if last:
            break
        time.sleep(_POLL_SECONDS)


class _Book:
    def __init__(self, directory: Path, query: Query, names: Collection[str] | None) -> None:
        self._directory = directory
        self._query = query
        self._names = names
        self._known: dict[Path, _Log] = {}

    def logs(self) -> list[_Log]:
        """Also of processes that have come since the last look."""
        for file in sorted(self._directory.glob("*.log")):
            if file not in self._known and (process := self._process(file)):
                self._known[file] = _Log(file, process, self._query)
        return list(self._known.values())

    def _process(self, file: Path) -> str:
        """Whose log it is; "" if nobody asked for it."""
        found = _NAME.match(file.name)
        name = found[1] if found else file.stem
        if not self._query.wants(name) or (self._names is not None and name not in self._names):
            return ""
        paddle = _WITH_PADDLE.match(name) and not (found and found[2])
        return f"{name}/paddle" if paddle else name


class _Log:
    def __init__(self, file: Path, process: str, query: Query) -> None:
        self._file = GrowingFile(file)
        self._process = process
        self._query = query
        self._time: float | None = None  # of the last line with one

    def whole(self) -> Iterator[Line]:
        """From where it was read last, as many lines as are wanted."""
        lines = self._query.select(self._lines())
        return lines if self._query.lines is None else iter(deque(lines, self._query.lines))

    def new(self) -> Iterator[Line]:
        """What was written since."""
        return self._query.select(self._lines())

    def _lines(self) -> Iterator[Line]:
        waiting: list[str] = []  # without a time, before the first line that has one
        end = iter(()) if self._query.follow else self._file.rest()
        for text in chain(self._file.lines(), end):
            if not self._query.noise and is_noise(text):
                continue
            parsed = parse(text, datetime.now().year)
            if parsed.time is not None:
                # Of several threads the later may write first; the order of the file is kept.
                self._time = max(parsed.time, self._time or 0.0)
            if self._time is None:
                waiting.append(parsed.text)
                continue
            for earlier in waiting:
                yield Line(self._time, self._process, earlier)
            waiting = []
            yield Line(self._time, self._process, parsed.text)
        for text in waiting:
            yield Line(self._file.path.stat().st_mtime, self._process, text)
