"""The logs of the containers of a Compose project, by the `docker` command."""

from __future__ import annotations

import heapq
import queue
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from fleet_config.errors import TryAgain, UserError
from fleetps.logbook.files import TIME
from fleetps.logbook.line import Line, parse
from fleetps.logbook.query import Query
from fleetps.system.logtail import is_noise

_PROJECT = "label=com.docker.compose.project={}"
_SERVICE, _NUMBER = "com.docker.compose.service", "com.docker.compose.container-number"
_FORMAT = f'{{{{.ID}}}}\t{{{{.Label "{_SERVICE}"}}}}\t{{{{.Label "{_NUMBER}"}}}}'
_POLL_SECONDS = 0.3
_LOOK_SECONDS = 2.0
_END_SECONDS = 5.0
# What docker puts before each line; it has nine digits, Python takes six.
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\d*Z (.*)$", re.DOTALL)


@dataclass(frozen=True)
class _Container:
    id: str
    service: str
    number: str


def read(project: str, query: Query) -> Iterator[Line]:
    """The lines of all containers in the order of time; with `query.follow` until the last ends.

    Raises:
        UserError: there is no docker, or the project has no containers.
        TryAgain: docker doesn't answer.
    """
    containers = _containers(project)
    if not containers:
        raise UserError(f"there are no containers of the Compose project {project}; see docker ps")
    if query.follow:
        yield from _followed(project, query)
    else:
        yield from heapq.merge(*(_last(one, query) for one in containers), key=TIME)


def _containers(project: str) -> list[_Container]:
    text = _docker("ps", "-a", "--filter", _PROJECT.format(project), "--format", _FORMAT)
    return [_Container(*line.split("\t")) for line in text.splitlines()]


def _docker(*arguments: str) -> str:
    done = subprocess.run([_program(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TryAgain(f"docker {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def _program() -> str:
    found = shutil.which("docker")
    if found is None:
        raise UserError("the command docker is not on the PATH; --compose needs it")
    return found


def _command(container: _Container, query: Query) -> Sequence[str]:
    since = [] if query.since is None else ["--since", str(query.since)]
    follow = ["--follow"] if query.follow else []
    return [_program(), "logs", "--timestamps", *since, *follow, container.id]


def _last(container: _Container, query: Query) -> Iterator[Line]:
    with _reading(container, query) as process:
        lines = query.select(_lines(process, container, query))
        yield from lines if query.lines is None else deque(lines, query.lines)


def _reading(container: _Container, query: Query) -> subprocess.Popen[str]:
    return subprocess.Popen(
        _command(container, query),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _lines(process: subprocess.Popen[str], container: _Container, query: Query) -> Iterator[Line]:
    assert process.stdout is not None
    latest = 0.0
    for raw in process.stdout:
        line = _line(raw.rstrip("\n"), container, query)
        if line is not None:
            latest = max(latest, line.time)
            yield replace(line, time=latest)


def _line(raw: str, container: _Container, query: Query) -> Line | None:
    """None: docker itself says something, or it is noise."""
    found = _STAMP.match(raw)
    if found is None or (is_noise(found[2]) and not query.noise):
        return None
    when = datetime.fromisoformat(f"{found[1]}+00:00")
    parsed = parse(found[2], when.year)
    name = parsed.role or f"{container.service}-{container.number}"
    return Line(when.timestamp(), name, parsed.text)


def _followed(project: str, query: Query) -> Iterator[Line]:
    """Lines that come within a moment are put in order; containers that come are read as well."""
    found: queue.SimpleQueue[Line] = queue.SimpleQueue()
    readers: dict[str, tuple[threading.Thread, subprocess.Popen[str]]] = {}

    def pump(process: subprocess.Popen[str], container: _Container) -> None:
        for line in query.select(_lines(process, container, query)):
            found.put(line)

    looked = 0.0
    try:
        while True:
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                for container in _containers(project):
                    if container.id not in readers:
                        process = _reading(container, query)
                        thread = threading.Thread(
                            target=pump, args=(process, container), daemon=True
                        )
                        thread.start()
                        readers[container.id] = (thread, process)
            over = not any(thread.is_alive() for thread, _ in readers.values())
            yield from sorted(_waiting(found), key=TIME)
            if over:
                return
            time.sleep(_POLL_SECONDS)
    finally:
        for _, process in readers.values():
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)


def _waiting(found: queue.SimpleQueue[Line]) -> Iterator[Line]:
    with suppress(queue.Empty):
        while True:
            yield found.get_nowait()
