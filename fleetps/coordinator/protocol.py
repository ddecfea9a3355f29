"""The list of the coordinator's methods; their arguments are checked as they are declared here."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import Field, FiniteFloat, NonNegativeInt

from fleetps.coordinator.messages import (
    Arrived,
    Clock,
    Evaluation,
    Events,
    JobState,
    Lease,
    Registered,
    Rendezvous,
    Size,
    TaskAnswer,
)
from fleetps.coordinator.reports import MemberRole, MemberState, Status

Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=10_000)]
Numbers = dict[Name, FiniteFloat]


class Coordinator(Protocol):
    """What `JobService` and `CoordinatorClient` can do; all may raise UserError or TryAgain."""

    def size(self) -> Size:
        """Asked before `register` by who knows no lists: a service may have been scaled."""

    def register(
        self,
        role: MemberRole,
        instance: Name,
        address: Name,
        rank: NonNegativeInt | None = None,
        digest: str = "",
        agreement: dict[str, Any] | None = None,
    ) -> Registered:
        """Join. `instance` is unique to this agent process.

        `address` is a server's endpoint (host:port), or a worker's host. Registering an instance
        again gives its rank again. `digest` is Job.digest(); with `agreement` (Job.agreement()) a
        refusal names the settings that differ.
        """

    def rendezvous(self, instance: Name) -> Rendezvous: ...

    def heartbeat(
        self,
        instance: Name,
        state: MemberState,
        load: Numbers | None = None,
        generation: NonNegativeInt | None = None,
    ) -> JobState:
        """Every cluster.heartbeat seconds; five missed ones and the member is lost.

        `exited` ends the membership and returns the leases. A worker sends it when its child has
        ended after Finish or after being told to stop, a server when its child was stopped after
        the job's end. `load`: `memory.used` and `memory.limit` of its process in bytes, and of a
        server `rows.<table>`, how many it holds, and `silent`, for how many seconds it has not
        answered its agent. `generation`: the one that `state` belongs to,
        where it may have ended meanwhile.
        """

    def fail(
        self,
        instance: Name,
        reason: Text,
        log_tail: Annotated[list[Text], Field(max_length=1000)] | None = None,
        exit_code: int | None = None,
        again: bool = False,
    ) -> JobState:
        """This member's process has failed; `exit_code` is the child's.

        `again`: it is about to be started again under the same instance, so it is still counted.
        With a server, or a worker of mode sync, a new generation begins then; the job fails if it
        is not started again, if the exit code is 2 (the user's mistake, for everybody), or if no
        worker is left. The first failure of a job wins.
        """

    def stop(self, reason: Text) -> JobState:
        """Stop the whole job on request, with a checkpoint if there is something to save.

        For at most cluster.deadlines.grace seconds the job is `ending` then.
        """

    def checkpoint(self, reason: Text) -> JobState:
        """Take a checkpoint as soon as it can be; `Status.checkpoint` tells when it is there.

        TryAgain when there is nothing left to train, or nothing is saved in this job.
        """

    def lease(self, instance: Name, request: Name | None = None) -> Lease:
        """Ask for work. At most two tasks are held at a time; asking for a third answers Wait.

        `request` names this call, so that a retry of it gets the same task (the client fills it
        in).
        """

    def progress(
        self,
        instance: Name,
        task_id: int,
        rows: NonNegativeInt,
        steps: NonNegativeInt,
        loss_sum: FiniteFloat,
        extra: Numbers | None = None,
    ) -> TaskAnswer:
        """Cumulative within the task, about once a second; `loss_sum`: the loss summed over rows.

        A report that got further renews all leases of the instance; one that did not says at least
        that the worker lives. `extra` is shown to people; `waited`: the seconds for which this
        process has waited for slower workers so far (mode bounded); `unreachable`: the rank of a
        server that it can't reach; what it says of its steps is in `training.step_times`.
        """

    def done(
        self,
        instance: Name,
        task_id: int,
        rows: NonNegativeInt,
        steps: NonNegativeInt,
        loss_sum: FiniteFloat,
        evaluation: Evaluation | None = None,
    ) -> TaskAnswer:
        """The task is finished. Other than its number of rows = it failed. May be repeated."""

    def failed(self, instance: Name, task_id: int, reason: Text) -> TaskAnswer:
        """The task could not be done; it returns to the queue, and the third time the job fails."""

    def diverged(self, instance: Name, task_id: int, reason: Text) -> JobState:
        """The loss of a task that this worker trains is no number, or exploded; its process ends.

        Then the job stops, or a new generation begins without the task, as watch.on_nan says.
        """

    def part_done(
        self,
        instance: Name,
        task_id: int,
        rows: NonNegativeInt,
        steps: NonNegativeInt,
        loss_sum: FiniteFloat,
    ) -> TaskAnswer:
        """This worker ends in the middle of a training task, whose first `rows` it has trained.

        They are done then, and the others become a task of their own. For who trains in the order
        of the slices: in one thread, and not in mode sync.
        """

    def release(self, instance: Name, begun: bool = True) -> JobState:
        """Return all leases without blame (a worker that was asked to stop).

        `begun`: some of their rows may have been trained, so they count as repeated next time.
        """

    def arrive(self, instance: Name, name: Name, note: Text = "") -> JobState:
        """This worker has reached the point `name` of the present generation.

        `note` is for whoever asks `arrived` about it; a later one replaces it.
        """

    def arrived(self, name: Name) -> Arrived: ...

    def clock(self, instance: Name, epoch: NonNegativeInt, steps: NonNegativeInt) -> Clock:
        """For mode bounded: this worker has completed so many training steps in this epoch."""

    def status(self) -> Status: ...

    def events(self, after: int = 0) -> Events:
        """Events with an id greater than `after`, oldest first, at most 1000."""
