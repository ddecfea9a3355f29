"""What the coordinator tells people: `Status` and its parts, and words shared with messages.py."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

MemberRole = Literal["server", "worker"]
# registered: the agent is there; serving: a server's port answers; running: a worker's child was
# started; exited: the child is gone and the agent leaves.
MemberState = Literal["registered", "serving", "running", "exited"]
# A member that missed so many is lost.
MISSED_HEARTBEATS = 5
JobPhase = Literal["waiting", "running", "done", "failed", "stopping"]


class Message(BaseModel):
    """A value that goes over the wire; it never changes."""

    model_config = ConfigDict(frozen=True)


class Memory(Message):
    """Of a member's Paddle process and what it started, in bytes; None: not known (yet)."""

    used: int | None = None
    limit: int | None = None  # of its control group, or else of the machine


class WorkerStatus(Message):
    rank: int
    address: str
    state: MemberState
    rows: int  # training rows reported by this worker, over the job
    rows_per_second: float
    loss: float | None
    task: int | None  # the task it reported on last
    heartbeat_age: float  # seconds
    extra: dict[str, float]
    memory: Memory = Memory()
    # Mode bounded: steps on the clock of all workers, how far ahead of the slowest that is (None
    # while nobody waits for this worker), and the seconds its process has waited for others.
    clock: int | None = None
    lead: int | None = None
    waited: float = 0.0
    # Over the last seconds: what a training thread takes for a batch, and the share of that in
    # which it waited for servers, its group or a core; straggler: it takes much longer than others.
    step_seconds: float | None = None
    idle: float | None = None
    straggler: bool = False


class ServerStatus(Message):
    rank: int
    address: str
    state: MemberState
    heartbeat_age: float
    rows: dict[str, int] = {}  # by table, as far as they were reported
    memory: Memory = Memory()


class EpochResult(Message):
    """Metrics are None if the epoch was not evaluated, the AUC also if one label is missing."""

    epoch: int
    train_rows: int
    train_loss: float | None
    seconds: float
    evaluated_rows: int
    auc: float | None
    log_loss: float | None
    calibration: float | None  # sum of predicted probabilities / sum of labels


class Accounting(Message):
    """Rows of the tasks made so far, evaluation included. Two sums always hold:

    leased = done + held + returned         (every lease ended in one way, or is still held)
    total  = done + held + waiting + quarantined + skipped     (every task is in one state)

    `repeated` = rows leased a second or later time. `skipped`: left out, see watch.on_nan.
    """

    total: int
    leased: int
    done: int
    held: int
    returned: int
    repeated: int
    waiting: int
    quarantined: int
    skipped: int = 0


class CheckpointStatus(Message):
    """`pause`: seconds in which nobody trained; before that, `drain` seconds in which some did."""

    number: int = 0  # of the last one that was committed; 0: none so far
    name: str = ""
    age: float | None = None  # seconds since then
    rows: int = 0  # training rows, over all epochs, that it holds
    pause: float = 0.0
    drain: float = 0.0
    failures: int = 0  # attempts that failed since then
    reason: str = ""  # why the last of these failed
    pending: bool = False  # one is being taken, or was asked for
    upkeep: bool = False  # the last one is still being copied to the mirror, or made a delta


class Failure(Message):
    who: str
    reason: str
    log_tail: tuple[str, ...]
    child_exit_code: int | None
    time: str


class Status(Message):
    name: str
    job: JobPhase
    wanted: dict[MemberRole, int] = {}  # how many the job is for
    heartbeat: float = 0.0  # seconds between two signs of life of a member
    generation: int
    phase: str  # see phases.py
    mode: str  # of the present epoch
    epoch: int
    epochs: int
    rows_total: int  # training rows over all epochs
    rows_done: int  # of these, trained (reports of running tasks included)
    phase_rows_total: int  # rows of the present phase (one epoch's training or evaluation)
    phase_rows_done: int
    rows_per_second: float
    loss: float | None  # over the last seconds
    eta: float | None  # seconds of training left
    seconds: float  # since the job began
    workers: tuple[WorkerStatus, ...]
    servers: tuple[ServerStatus, ...]
    max_lead: int | None  # mode bounded: the furthest that a worker was ahead of the slowest
    workers_lost: int  # while the job went on
    losses: tuple[str, ...]  # what the last of them died of
    notices: tuple[str, ...] = ()  # the last of what people should hear of though nothing failed
    notices_so_far: int = 0
    stalled: str = ""  # who is waited for, when nothing goes on
    missing: tuple[str, ...]
    checkpoint: CheckpointStatus = CheckpointStatus()
    recoveries: tuple[str, ...] = ()  # from where the job went on, whenever it did
    history: tuple[EpochResult, ...]
    loss_curve: tuple[tuple[int, float], ...]  # (rows trained, recent loss)
    speed_curve: tuple[tuple[int, float], ...] = ()  # (seconds since the job began, rows/s)
    accounting: Accounting
    events: dict[str, int] = {}  # how many there were of each kind
    failure: Failure | None
    reason: str
    exit_code: int | None
    best_auc: float | None  # best possible, where the data set knows it (synthetic)
    versions: dict[str, str]
