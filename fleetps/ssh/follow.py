"""The logs of a job's processes on this host, as they are and as they grow."""

import os
import select
import sys
import time
from pathlib import Path

from fleet_config.errors import EXIT_OK, EXIT_USER
from fleetps.ssh.processes import Processes
from fleetps.ssh.words import Request
from fleetps.system.logtail import tail

_POLL_SECONDS = 0.3


def show_logs(processes: Processes, request: Request) -> int:
    """Print the last lines of each log, and with `follow` what comes until all have ended.

    The other end of the connection shows that it is gone by closing standard input.
    """
    names = request.names
    missing = [name for name in names if not processes.log(name).exists()]
    if missing:
        sys.stderr.write(f"{', '.join(missing)}: nothing was written yet\n")
    growing = [_Log(name, processes.log(name)) for name in names if name not in missing]
    for log in growing:
        log.show_last(request.lines)
    while request.follow:
        running = any(processes.living(log.name) for log in growing)
        for log in growing:
            log.show_new()
        if not running or _closed():
            break
        time.sleep(_POLL_SECONDS)
    return EXIT_USER if missing else EXIT_OK


class _Log:
    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self._file = file
        self._at = file.stat().st_size
        self._part = b""

    def show_last(self, lines: int) -> None:
        for line in tail(self._file, lines):
            self._show(line)

    def show_new(self) -> None:
        with self._file.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        self._at += len(new)
        *whole, self._part = (self._part + new).split(b"\n")
        for line in whole:
            self._show(line.decode(errors="replace"))

    def _show(self, line: str) -> None:
        sys.stdout.write(f"{self.name} | {line}\n")
        sys.stdout.flush()


def _closed() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not os.read(sys.stdin.fileno(), 1)
