"""The helper on a host: one request on standard input, one answer on standard output.

    cd ~/fleetps && PYTHONPATH=code python -m fleetps.ssh.host

The current directory is the host's `directory`: code/, jobs/<job>.json, and what the job file's
relative paths name.
"""

import sys

try:
    import psutil  # noqa: F401 - stands for all dependencies
    import pydantic
except ModuleNotFoundError as error:
    sys.exit(
        f"the Python package {error.name} is missing for {sys.executable}: install the "
        "dependencies there, or set `python` of this host to one that has them"
    )

from collections.abc import Callable, Mapping
from pathlib import Path

from fleet_config.errors import FleetError, UserError
from fleetps.coordinator.client import CoordinatorClient
from fleetps.installation import check_installation
from fleetps.ssh.follow import show_logs
from fleetps.ssh.processes import Processes
from fleetps.ssh.words import Answer, Request

_CALL_SECONDS = 4.0


def _check(_request: Request, _processes: Processes) -> Answer:
    check_installation()
    return Answer()


def _prepare(request: Request, processes: Processes) -> Answer:
    processes.prepare(request.job, request.token)
    return Answer(checkpoints=processes.checkpoints())


def _sees(request: Request, _processes: Processes) -> Answer:
    return Answer(sees=Path(request.path).is_dir())


def _start(request: Request, processes: Processes) -> Answer:
    processes.start(request.processes)
    return Answer(processes=processes.states())


def _status(_request: Request, processes: Processes) -> Answer:
    if not processes.known:
        return Answer()
    status = None
    if processes.coordinator_runs():
        try:
            with _coordinator(processes) as client:
                status = client.status()
        except FleetError:
            status = None  # it starts, or it ends: its process is in the answer
    return Answer(processes=processes.states(), job=status, result=processes.result())


def _token(_request: Request, processes: Processes) -> Answer:
    return Answer(token=processes.token() or "")


def _ask(_request: Request, processes: Processes) -> Answer:
    if processes.coordinator_runs():
        with _coordinator(processes) as client:
            client.stop("stopped by ssh_cluster.py stop")
    return Answer()


def _end(request: Request, processes: Processes) -> Answer:
    if processes.known:
        processes.end(request.role, request.grace)
    return Answer(processes=processes.states())


def _coordinator(processes: Processes) -> CoordinatorClient:
    return CoordinatorClient(processes.coordinator_address(), processes.token(), _CALL_SECONDS)


_ACTIONS: Mapping[str, Callable[[Request, Processes], Answer]] = {
    "check": _check,
    "prepare": _prepare,
    "sees": _sees,
    "start": _start,
    "status": _status,
    "token": _token,
    "ask": _ask,
    "end": _end,
}


def main() -> int:
    """Answers the request; its errors are part of the answer."""
    try:
        request = Request.model_validate_json(sys.stdin.readline())
        processes = Processes(request.name, request.host)
        if request.action == "logs":
            return show_logs(processes, request)
        answer = _ACTIONS[request.action](request, processes)
    except pydantic.ValidationError:
        mend = UserError("its code is of another version; run sync again")
        answer = Answer(error=str(mend), exit_code=mend.exit_code)
    except FleetError as error:
        answer = Answer(error=str(error), exit_code=error.exit_code)
    sys.stdout.write(f"{answer.model_dump_json()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
