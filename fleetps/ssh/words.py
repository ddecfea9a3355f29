"""What is said between the command and its helper on a host: one JSON object each way."""

from __future__ import annotations

from typing import Literal

from fleet_config.errors import FleetError
from fleetps.coordinator.reports import Message, Status
from fleetps.logbook.query import Query

COORDINATOR = "coordinator"


class Wanted(Message):
    """A process that a host is to run."""

    name: str  # coordinator, server-0, worker-3
    env: dict[str, str]

    @classmethod
    def coordinator(cls, address: str) -> Wanted:
        return cls(name=COORDINATOR, env={"ROLE": "COORDINATOR", "COORDINATOR": address})

    @classmethod
    def server(cls, coordinator: str, rank: int, port: int) -> Wanted:
        role = {"ROLE": "SERVER", "SERVER_INDEX": str(rank), "SERVER_PORT": str(port)}
        return cls(name=f"server-{rank}", env={**role, "COORDINATOR": coordinator})

    @classmethod
    def worker(cls, coordinator: str, rank: int) -> Wanted:
        role = {"ROLE": "WORKER", "WORKER_INDEX": str(rank)}
        return cls(name=f"worker-{rank}", env={**role, "COORDINATOR": coordinator})


class Request(Message):
    """One thing that a host is asked to do.

    check: can this Python train?    prepare: write down the job file and the token.
    sees: the directory `path`?      start: `processes`, as far as they don't run.
    status: of everything started.   token: the one in use.
    logs: a `LogLine` for each line of `names` that `query` asks for.
    ask: the coordinator to stop the job.
    end: the processes of `role`, within `grace` seconds; after that by SIGKILL.
    """

    action: Literal["check", "prepare", "sees", "start", "status", "token", "logs", "ask", "end"]
    name: str  # the job's
    host: str  # as the job file calls it: hosts may share a directory
    job: str = ""  # the job file
    token: str = ""
    path: str = ""
    processes: tuple[Wanted, ...] = ()
    names: tuple[str, ...] = ()
    role: str = ""
    grace: float = 0.0
    query: Query = Query()


class LogLine(Message):
    """See `logbook.line.Line`."""

    time: float
    process: str
    text: str


class ProcessState(Message):
    """`code` None: it runs, or was killed together with what would have kept its exit code."""

    name: str
    pid: int
    running: bool
    coordinator: str = ""  # of one that runs: where it looks for the coordinator
    code: int | None = None
    last: str = ""  # of one that failed: what its log ends with


class Answer(Message):
    error: str = ""  # a sentence; then nothing else counts
    exit_code: int = 0
    processes: tuple[ProcessState, ...] = ()
    job: Status | None = None  # where the coordinator runs, and answers
    result: str = ""  # where it has ended well: the last epoch in a line
    token: str = ""
    checkpoints: str = ""  # prepare: where they will be, if any
    sees: bool = False


# By the key of the host: `hosts.1`.
Answers = dict[str, Answer]
Errors = dict[str, FleetError]
