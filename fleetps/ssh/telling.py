"""What people are told about a job on many hosts."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence

from fleet_config.errors import EXIT_OK, EXIT_STOPPED
from fleetps.coordinator.reports import Status
from fleetps.observe.words import phase_line
from fleetps.ssh.plan import Placement
from fleetps.ssh.words import Answer, Answers, Errors, ProcessState
from fleetps.system.process import describe_exit

# How a shell says that a signal ended a process.
_KILLED = 128 + signal.SIGKILL


def overview(places: Sequence[Placement], answers: Answers, errors: Errors) -> Iterator[str]:
    """A line for each host and each process on it."""
    for place in places:
        lost = place.key in errors
        yield f"  {place.name}{': not reached' if lost else ''}"
        answer = answers.get(place.key, Answer())
        states = {state.name: state for state in answer.processes}
        # Those of an earlier job file come last.
        for name in dict.fromkeys([*(process.name for process in place.processes), *states]):
            yield f"    {name:<12} {'unknown' if lost else process_words(states.get(name))}"


def job_line(answers: Iterable[Answer], *, all_asked: bool = True) -> str:
    """Where the job is, or how it has ended. `all_asked` False: some hosts could not be."""
    seen = list(answers)
    status = job_status(seen)
    if status is not None:
        line = phase_line(status)
        return f"{line}: {status.reason}" if status.reason else line
    result = next((answer.result for answer in seen if answer.result), "")
    if result:
        return f"done; {result}"
    states = [process for answer in seen for process in answer.processes]
    if all_asked and any(process.running for process in states):
        return "the coordinator does not answer (yet)"
    if not all_asked:
        return "unknown, as not all hosts can be asked"
    return "ended" if states else "not started"


def job_status(answers: Iterable[Answer]) -> Status | None:
    """What the coordinator says, if it runs."""
    return next((answer.job for answer in answers if answer.job is not None), None)


def process_words(state: ProcessState | None) -> str:
    """How one process is doing, or how it has ended."""
    if state is None:
        return "not started"
    if state.running:
        return f"runs (process {state.pid})"
    if state.code == EXIT_OK:
        return "done"
    if state.code is None or state.code == _KILLED:
        return describe_exit(-signal.SIGKILL)
    how = "stopped" if state.code == EXIT_STOPPED else describe_exit(state.code)
    return f"{how}: {state.last}" if state.last else how
