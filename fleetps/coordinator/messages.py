"""What is said between the coordinator and its clients.

`Coordinator` is the list of methods. `service.JobService` is the real thing (used in-process by the
`local` role), `client.CoordinatorClient` the same methods over HTTP: `POST /v1/<method>` with the
method's arguments as a JSON object, answered by the model the method returns.

A refused call answers `{"error": {"kind": "user" | "try_again", "message": "one sentence"}}`, which
the client raises as `UserError` or `TryAgain`, exactly as the service itself does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from fleetps.coordinator.reports import JobPhase, MemberRole, MemberState, Message, Status

# Scores are counted in equal bins of the logit, from -LOGIT_LIMIT to +LOGIT_LIMIT:
#     index = clip(floor((logit + LOGIT_LIMIT) * LOGIT_BINS / (2 * LOGIT_LIMIT)), 0, LOGIT_BINS - 1)
# A worker must use exactly this, whatever it computes with, and refuse a logit that is not finite.
LOGIT_BINS = 2**16
LOGIT_LIMIT = 16.0


class Registered(Message):
    rank: int
    generation: int


class Rendezvous(Message):
    """Who is there. `servers` (by rank) is filled as soon as all servers have registered."""

    complete: bool  # every server serves and at least cluster.workers workers have registered
    servers: tuple[str, ...]
    workers: int  # cluster.workers, or more when more have come
    missing: tuple[str, ...]  # for people, such as "server 1 (not registered)"
    waited: float  # seconds since the coordinator began to wait
    generation: int


class JobState(Message):
    """The answer to most calls: what the job is doing now, so that everybody hears of its end."""

    job: JobPhase
    generation: int
    reason: str = ""  # why it failed or stops
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
    shard: str  # absolute path
    start: NonNegativeInt  # first row in the shard
    rows: NonNegativeInt


class Task(Message):
    """Rows of one split. `rows_before`: training rows leased earlier (drives LR schedules)."""

    id: int
    generation: int
    epoch: int
    split: str
    training: bool
    slices: tuple[Slice, ...]  # at least cluster.threads of them when there are that many rows
    rows: int
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
    """The epoch is drained: push everything to the servers, `arrive(name)`, lease again."""

    kind: Literal["flush"] = "flush"
    name: str


class Finish(Message):
    """All epochs are trained and evaluated: end with exit code 0."""

    kind: Literal["finish"] = "finish"


class Stop(Message):
    """The job failed or stops: end now (the agent is about to say so too)."""

    kind: Literal["stop"] = "stop"
    reason: str


Lease = Annotated[TaskLease | Wait | Flush | Finish | Stop, Field(discriminator="kind")]


class Evaluation(Message):
    """One evaluation task's scores: integers per logit bin (LOGIT_BINS), and sums over its rows."""

    bins: dict[int, tuple[NonNegativeInt, NonNegativeInt]]  # index -> (negatives, positives)
    log_loss_sum: NonNegativeFloat
    prob_sum: NonNegativeFloat
    label_sum: NonNegativeFloat
    rows: NonNegativeInt


class Arrived(Message):
    ranks: tuple[int, ...]  # workers that have arrived, sorted


class Event(Message):
    id: int
    time: str  # UTC, ISO 8601
    kind: str
    who: str  # "worker 1", "server 0", "coordinator"
    text: str


class Events(Message):
    events: tuple[Event, ...]


class Coordinator(Protocol):
    """What `JobService` and `CoordinatorClient` can do; all may raise UserError or TryAgain."""

    def register(
        self,
        role: MemberRole,
        instance: str,
        address: str,
        rank: int | None = None,
        digest: str = "",
        agreement: dict[str, Any] | None = None,
    ) -> Registered:
        """Join. `instance` is unique to this agent process.

        `address` is a server's endpoint (host:port), or a worker's host. Registering an instance
        again gives its rank again. `digest` is Job.digest(); with `agreement` (Job.agreement()) a
        refusal names the settings that differ.
        """

    def rendezvous(self, instance: str) -> Rendezvous: ...

    def heartbeat(self, instance: str, state: MemberState) -> JobState:
        """Every cluster.heartbeat seconds; five missed ones and the member is lost.

        `exited` ends the membership and returns the leases. A worker sends it when its child has
        ended after Finish or after being told to stop, a server when its child was stopped after
        the job's end.
        """

    def fail(
        self,
        instance: str,
        reason: str,
        log_tail: list[str] | None = None,
        exit_code: int | None = None,
    ) -> JobState:
        """The whole job failed because of this member. The first failure wins.

        `exit_code` is the child's: 2 makes it the user's mistake for everybody, anything else 75.
        """

    def stop(self, reason: str) -> JobState:
        """Stop the whole job on request."""

    def lease(self, instance: str, request: str | None = None) -> Lease:
        """Ask for work. At most two tasks are held at a time; asking for a third answers Wait.

        `request` names this call, so that a retry of it gets the same task (the client fills it
        in).
        """

    def progress(
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        extra: dict[str, float] | None = None,
    ) -> TaskAnswer:
        """Cumulative within the task, about once a second; `loss_sum`: the loss summed over rows.

        A report that got further renews all leases of the instance.
        """

    def done(
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        evaluation: Evaluation | None = None,
    ) -> TaskAnswer:
        """The task is finished. Other than its number of rows = it failed. May be repeated."""

    def failed(self, instance: str, task_id: int, reason: str) -> TaskAnswer:
        """The task could not be done; it returns to the queue, and the third time the job fails."""

    def release(self, instance: str) -> JobState:
        """Return all leases without blame (a worker that was asked to stop)."""

    def arrive(self, instance: str, name: str) -> JobState: ...

    def arrived(self, name: str) -> Arrived: ...

    def status(self) -> Status: ...

    def events(self, after: int = 0) -> Events:
        """Events with an id greater than `after`, oldest first, at most 1000."""
