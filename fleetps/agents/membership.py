"""What a member's agent says to the coordinator, and what it makes of silence."""

import logging
import os
import time
import uuid
from collections.abc import Sequence

from fleet_config.errors import EXIT_USER, FleetError, Stopped, TryAgain, UserError
from fleet_config.job import Job
from fleetps.agents.heartbeat import Heartbeat
from fleetps.coordinator.access import read_token
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.messages import JobState, Registered
from fleetps.coordinator.reports import (
    MISSED_HEARTBEATS,
    MemberRole,
    MemberState,
    ServerStatus,
    Status,
    WorkerStatus,
)

_log = logging.getLogger(__name__)

# One call to the coordinator when there is no time to lose.
_CALL_SECONDS = 2.0
_AGAIN_SECONDS = 0.3
# Of cluster.deadlines.stop, for a checkpoint before this member leaves.
_SHARE_OF_CHECKPOINT = 0.7
# A member that missed so many heartbeats is not waited for when the job ends.
_ABSENT_HEARTBEATS = 3
OVER = ("done", "failed", "stopping")


class NewGeneration(Exception):
    """All servers begin again: this member's process is to end, and another one to begin.

    No error; it takes an agent out of any wait.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"generation {number}")


class Membership:
    """One instance's part in a job; before `join` it has no rank."""

    def __init__(self, job: Job, kind: MemberRole, coordinator: str, patience: float) -> None:
        self.kind: MemberRole = kind
        self.coordinator = coordinator
        self.instance = os.environ.get("FLEETPS_INSTANCE") or f"{kind}-{uuid.uuid4().hex[:12]}"
        self._token = read_token(os.environ)
        self.client = CoordinatorClient(coordinator, self._token, _CALL_SECONDS)
        self.rank = -1
        self.generation = 0
        self.restore = ""  # what the servers of this generation begin with
        self.servers: tuple[str, ...] = ()
        self.missing: tuple[str, ...] = ()
        self.ending = False  # the job takes its last checkpoint
        self._job = job
        self.patience = patience
        beats = CoordinatorClient(coordinator, self._token, _CALL_SECONDS)
        self._heartbeat = Heartbeat(beats, self.instance, job.cluster.heartbeat)

    @property
    def joined(self) -> bool:
        return self.rank >= 0

    @property
    def name(self) -> str:
        """As the coordinator calls it: `worker 1`."""
        return f"{self.kind} {self.rank}" if self.joined else self.kind

    def join(self, address: str, rank: int | None) -> None:
        """Wait for the coordinator and register."""
        patience = self._job.cluster.deadlines.rendezvous
        with CoordinatorClient(self.coordinator, self._token, patience) as client:
            registered = self._register(client, address, rank)
        self.rank, self.generation = registered.rank, registered.generation
        self.restore = registered.restore
        self._heartbeat.begin(self.generation)
        self._heartbeat.start()

    def _register(self, client: CoordinatorClient, address: str, rank: int | None) -> Registered:
        """Who held this place before may be dead, and not be missed yet."""
        deadline = (
            time.monotonic() + MISSED_HEARTBEATS * self._job.cluster.heartbeat + _CALL_SECONDS
        )
        told = False
        while True:
            try:
                return client.register(
                    self.kind,
                    self.instance,
                    address,
                    rank,
                    self._job.digest(),
                    self._job.agreement(),
                )
            except TryAgain as error:
                if time.monotonic() > deadline:
                    raise
                if not told:
                    _log.warning("%s", error)
                told = True
                time.sleep(_AGAIN_SECONDS)

    def begin_again(self, address: str) -> None:
        """Register for the generation that has begun; this member's process has ended."""
        self.servers, self.missing = (), ()
        self.join(address, self.rank)

    def meet(self) -> None:
        """Ask for the servers' endpoints, which are there when all servers have registered."""
        try:
            meeting = self.client.rendezvous(self.instance)
        except TryAgain as error:
            _log.warning("%s", error)
            return
        self.servers = meeting.servers
        if meeting.missing != self.missing and not meeting.servers:
            _log.info("waiting for %s", ", ".join(meeting.missing))
        self.missing = meeting.missing

    def say(self, state: MemberState) -> None:
        self._heartbeat.say(state)

    def carries(self, load: dict[str, float]) -> None:
        """What this member's process takes goes with the next heartbeat."""
        self._heartbeat.load = load

    def end_heard(self) -> JobState | None:
        """How the job ended, once a heartbeat's answer said so."""
        answer = self._heartbeat.answer
        return self._heeded(answer) if answer is not None else None

    def _heeded(self, answer: JobState) -> JobState | None:
        self.ending = answer.ending
        if answer.job in OVER:
            return answer
        if self.joined and answer.generation > self.generation:
            raise NewGeneration(answer.generation)
        return None

    def end_now(self) -> JobState | None:
        """How the job ended, asked at this moment; None while it runs or nobody answers."""
        try:
            answer = self.client.heartbeat(
                self.instance, self._heartbeat.state, None, self.generation
            )
        except FleetError as error:
            _log.debug("no answer: %s", error)
            return None
        return self._heeded(answer)

    def check_coordinator(self) -> None:
        """Raise when it has been silent for too long."""
        if self._heartbeat.silence() > self.patience:
            raise TryAgain(
                f"the coordinator at {self.coordinator} has not answered for "
                f"{self.patience:.0f} s: {self._heartbeat.trouble}"
            )

    def fail(self, reason: str, log_tail: list[str], code: int | None) -> JobState:
        """Report that this member failed; the answer is the job's first failure."""
        _log.error("%s: %s", self.name, reason)
        try:
            answer = self.client.fail(self.instance, reason, log_tail, code)
            return self._heeded(answer) or answer
        except FleetError as error:
            _log.warning("the coordinator was not told: %s", error)
            return JobState(
                job="failed",
                generation=self.generation,
                reason=f"{self.name}: {reason}",
                exit_code=code,
            )

    def lose(self, reason: str, log_tail: list[str], code: int | None) -> JobState | None:
        """Report that this member's process died and is about to be started again.

        It must not be started before the coordinator knows: it would seem to hold the tasks of the
        dead one. None: go on. TryAgain when the coordinator stays away.
        """
        _log.error("%s: %s", self.name, reason)
        self.say("registered")
        while True:
            try:
                return self._heeded(
                    self.client.fail(self.instance, reason, log_tail, code, again=True)
                )
            except TryAgain as error:
                _log.warning("the coordinator was not told: %s", error)
                self.check_coordinator()
                time.sleep(_AGAIN_SECONDS)

    def stop_job(self, signal: str) -> JobState:
        """Ask for the end of the whole job; it may have ended already, in another way.

        It may also go on until a checkpoint is taken. Stopped when the coordinator can't be asked:
        then nothing is left to end with care.
        """
        reason = f"{self.name} was asked to stop ({signal})"
        try:
            return self.client.stop(reason)
        except FleetError as error:
            raise Stopped(f"{reason}; the coordinator was not told: {error}") from None

    def wait_for_checkpoint(self, reason: str) -> None:
        """Have one taken before this member leaves, if there is time."""
        deadline = time.monotonic() + self._job.cluster.deadlines.stop * _SHARE_OF_CHECKPOINT
        try:
            self.client.checkpoint(reason)
            while self.client.status().checkpoint.pending and time.monotonic() < deadline:
                time.sleep(_AGAIN_SECONDS)
        except FleetError as error:
            _log.warning("no checkpoint was taken before it left: %s", error)

    def leave(self) -> None:
        """The last word: nobody needs to wait for this member any longer."""
        if not self._heartbeat.stop() or not self.joined:
            return
        try:
            self.client.heartbeat(self.instance, "exited")
        except FleetError as error:
            _log.debug("left without a word: %s", error)


def any_present(members: Sequence[WorkerStatus | ServerStatus], heartbeat: float) -> bool:
    """Whether any of them is still there and listens."""
    return any(
        member.state != "exited" and member.heartbeat_age < _ABSENT_HEARTBEATS * heartbeat
        for member in members
    )


def state_of(status: Status) -> JobState:
    return JobState(
        job=status.job,
        generation=status.generation,
        reason=status.reason,
        exit_code=status.exit_code,
    )


def end_of(state: JobState) -> FleetError:
    """How a job ended, as the error to end with."""
    reason = state.reason or f"the job is {state.job}"
    if state.job == "stopping":
        return Stopped(reason)
    return UserError(reason) if state.exit_code == EXIT_USER else TryAgain(reason)
