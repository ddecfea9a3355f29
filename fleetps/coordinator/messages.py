"""What is said between the coordinator and its clients.

`protocol.Coordinator` is the list of methods. `service.JobService` is the real thing (used
in-process by the `local` role), `client.CoordinatorClient` the same methods over HTTP:
`POST /v1/<method>` with the method's arguments as a JSON object, answered by the model the method
returns.

A refused call answers `{"error": {"kind": "user" | "try_again", "message": "one sentence"}}`, which
the client raises as `UserError` or `TryAgain`, exactly as the service itself does.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, NonNegativeFloat, NonNegativeInt

from fleetps.coordinator.reports import JobPhase, Message

# Scores are counted in equal bins of the logit, from -LOGIT_LIMIT to +LOGIT_LIMIT:
#     index = clip(floor((logit + LOGIT_LIMIT) * LOGIT_BINS / (2 * LOGIT_LIMIT)), 0, LOGIT_BINS - 1)
# A worker must use exactly this, whatever it computes with, and refuse a logit that is not finite.
LOGIT_BINS = 2**16
LOGIT_LIMIT = 16.0

# Where every worker arrives in each generation once the servers hold the values to begin with.
INITIALISED = "dense-initialised"
# Before the reason in the note with which a worker arrives that could not save a checkpoint.
SAVE_ERROR = "error: "
# In the `extra` of a worker's progress: the rank of a server that it can't reach.
UNREACHABLE = "unreachable"


class Registered(Message):
    rank: int
    generation: int
    restore: str = ""  # see JobState


class Size(Message):
    """With how many the job begins: the coordinator's numbers hold for everybody."""

    servers: int
    workers: int


class Rendezvous(Message):
    """Who is there. `servers` (by rank) is filled as soon as all servers have registered."""

    complete: bool  # every server serves and at least cluster.workers workers have registered
    servers: tuple[str, ...]
    workers: int  # how many there are; before all have come, how many will be
    learners: int  # mode geo: how many workers' changes this one's is averaged with, and its own
    missing: tuple[str, ...]  # for people, such as "server 1 (not registered)"
    waited: float  # seconds since the coordinator began to wait
    generation: int
    restore: str = ""  # see JobState


class JobState(Message):
    """The answer to most calls: what the job is doing now, so that everybody hears of its end.

    A generation higher than the one that a member has registered for: servers were lost. Its
    process is to be ended; then it registers again, and another one begins with `restore`, the
    directory of a checkpoint ("": with nothing).
    """

    job: JobPhase
    generation: int
    restore: str = ""
    reason: str = ""  # why it failed or stops
    # It will stop as soon as a checkpoint is taken: who trains stops behind this batch, as at the
    # end of its process, but for the flush and what else the coordinator asks for.
    ending: bool = False
    exit_code: int | None = (
        None  # what a process of this job should exit with, once the job is over
    )


class TaskAnswer(JobState):
    """`accepted` False: the caller no longer holds this task, or its report was wrong (`note`).

    The task then goes to somebody else: log the note, drop the task and lease the next.
    """

    accepted: bool = True
    note: str = ""


class Slice(Message):
    """Rows of a shard in a certain order, or what a worker that left has not done of them.

    The order is that of `seed`, where there is one; in it come the rows from `skip` to before
    `stop` (None: the last).
    """

    shard: str  # absolute path
    start: NonNegativeInt  # first row in the shard
    rows: NonNegativeInt
    skip: NonNegativeInt = 0
    stop: NonNegativeInt | None = None
    seed: int | None = None  # None: what follows from the task's shuffle_seed

    @property
    def count(self) -> int:
        """How many rows it comes to."""
        return (self.rows if self.stop is None else self.stop) - self.skip


class Task(Message):
    """Rows of one split. `rows_before`: training rows leased earlier (drives LR schedules).

    In an epoch of mode sync a task is one worker's part of a group of tasks, one for each of the
    ranks below cluster.workers. All parts of a group have the same `rows_before` and the same
    `rows + pad`: the worker appends `pad` (0 or 1) rows of zero weight, so that all make the same
    number of steps. `rows`, here and in reports, never counts them.
    """

    id: int
    generation: int
    epoch: int
    split: str
    training: bool
    slices: tuple[Slice, ...]  # at least cluster.threads of them when there are that many rows
    rows: int
    pad: int = 0
    rows_before: int
    shuffle_seed: int | None  # None: keep the order (evaluation, or data.shuffle false)


class TaskLease(Message):
    kind: Literal["task"] = "task"
    task: Task


class Wait(Message):
    """Nothing to do now: lease again after `seconds`."""

    kind: Literal["wait"] = "wait"
    seconds: float


class Flush(Message):
    """All tasks are done: push everything to the servers, `arrive(name)`, lease again.

    `save`: the directory in which this worker leaves its optimizer's state; "": nowhere.
    """

    kind: Literal["flush"] = "flush"
    name: str
    save: str = ""


class Chore(Message):
    """Work that one worker does for all, while nobody trains: do it, `arrive(name)`, lease again.

    `save`: write checkpoint `number` into `directory`, in which the workers have left what is
    theirs, with `progress` as it is, and commit it. The note with which the worker arrives is the
    checkpoint's name, or SAVE_ERROR and one sentence.
    """

    kind: Literal["chore"] = "chore"
    name: str
    action: Literal["shrink", "save"]
    epoch: int  # the present one, from 0
    number: int = 0
    directory: str = ""  # absolute
    progress: dict[str, JsonValue] = {}


class Finish(Message):
    """All epochs are trained and evaluated: end with exit code 0."""

    kind: Literal["finish"] = "finish"


class Stop(Message):
    """The job failed or stops: end now (the agent is about to say so too)."""

    kind: Literal["stop"] = "stop"
    reason: str


Lease = Annotated[TaskLease | Wait | Flush | Chore | Finish | Stop, Field(discriminator="kind")]


class Clock(JobState):
    """How far a worker may go in an epoch of mode bounded.

    `limit` and `slowest` count steps as the asking worker does: it may complete step `limit` and
    must ask again, every `poll` seconds, before it goes beyond. `slowest` is where the slowest
    worker stands that is waited for.
    """

    limit: int
    slowest: int
    poll: float


class Evaluation(Message):
    """One evaluation task's scores: integers per logit bin (LOGIT_BINS), and sums over its rows."""

    bins: dict[int, tuple[NonNegativeInt, NonNegativeInt]]  # index -> (negatives, positives)
    log_loss_sum: NonNegativeFloat
    prob_sum: NonNegativeFloat
    label_sum: NonNegativeFloat
    rows: NonNegativeInt


class Arrived(Message):
    ranks: tuple[int, ...]  # workers that have arrived, sorted
    notes: dict[int, str] = {}  # rank -> what it left for the others, if anything


class Event(Message):
    id: int
    time: str  # UTC, ISO 8601
    kind: str
    who: str  # "worker 1", "server 0", "coordinator"
    text: str


class Events(Message):
    events: tuple[Event, ...]
