"""The logs of a job's processes on this host, as they are and as they grow."""

import os
import select
import sys

from fleet_config.errors import EXIT_OK
from fleetps.logbook import files
from fleetps.ssh.processes import Processes
from fleetps.ssh.words import LogLine, Request


def show_logs(processes: Processes, request: Request) -> int:
    """Print the lines that are wanted; with `query.follow` what comes until all have ended.

    The other end of the connection shows that it is gone by closing standard input.
    """

    def over() -> bool:
        return _closed() or not any(processes.living(name) for name in request.names)

    for line in files.read(processes.run.logs, request.query, request.names, over):
        said = LogLine(time=line.time, process=line.process, text=line.text)
        sys.stdout.write(f"{said.model_dump_json()}\n")
        sys.stdout.flush()
    return EXIT_OK


def _closed() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not os.read(sys.stdin.fileno(), 1)
