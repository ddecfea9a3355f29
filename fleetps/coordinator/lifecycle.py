"""The state of the job as a whole: waiting, running, and how it ended. The first end wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleet_config.errors import EXIT_OK, EXIT_STOPPED, EXIT_TRY_AGAIN, EXIT_USER
from fleetps.coordinator.base import Base
from fleetps.coordinator.events import iso
from fleetps.coordinator.messages import JobState
from fleetps.coordinator.reports import Failure
from fleetps.coordinator.schema import JobRow

COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Death:
    """How a member ended, or why it is taken for dead; `log_tail` and `exit_code` of its child."""

    reason: str
    log_tail: Sequence[str] = ()
    exit_code: int | None = None

    def because(self, more: str) -> Death:
        """The same with more of the reason."""
        return Death(f"{self.reason}; {more}", self.log_tail, self.exit_code)


class Lifecycle:
    def __init__(self, base: Base) -> None:
        self._store = base.store
        self._events = base.events
        self._clock = base.clock
        self._wall = base.wall
        # Deadlines count from here: after a restart everybody gets the full time again.
        self.phase_since = base.clock()
        self._ended_at = base.clock()
        # Why the job is to stop as soon as a checkpoint is taken. Not in the store: a coordinator
        # that is started again meanwhile goes on, and may be asked again.
        self.ending = ""
        self._ends_since = base.clock()

    @property
    def row(self) -> JobRow:
        row = self._store.job()
        if row is None:
            raise LookupError("the store has no job")
        return row

    @property
    def over(self) -> bool:
        return self.row.state not in ("waiting", "running")

    def state(self) -> JobState:
        row = self.row
        return JobState(
            job=row.state,
            generation=row.generation,
            restore=row.restore,
            reason=row.reason,
            exit_code=row.exit_code,
            ending=bool(self.ending),
        )

    def begin_to_end(self, reason: str) -> None:
        """The job stops soon."""
        self.ending, self._ends_since = reason, self._clock()

    def ends_for(self) -> float:
        """Seconds since it was asked to stop."""
        return self._clock() - self._ends_since

    def enter(self, phase: str, **columns: Any) -> None:
        self._store.set_job(phase=phase, phase_started=self._wall(), **columns)
        self.phase_since = self._clock()

    def again(self) -> None:
        """The deadlines of the present phase count from now."""
        self.phase_since = self._clock()

    def in_phase(self) -> float:
        """Seconds for which the present phase has been waited for."""
        return self._clock() - self.phase_since

    def since_end(self) -> float:
        """Seconds since the job's end."""
        return self._clock() - self._ended_at

    def fail(self, who: str, reason: str, *, exit_code: int = EXIT_TRY_AGAIN) -> None:
        self._fail(who, Death(reason), exit_code)

    def fail_by_death(self, who: str, death: Death) -> None:
        """A child's exit code 2 says it was the user's mistake; of any other end nobody knows."""
        self._fail(who, death, EXIT_USER if death.exit_code == EXIT_USER else EXIT_TRY_AGAIN)

    def _fail(self, who: str, death: Death, exit_code: int) -> None:
        if self.over:
            return
        failure = Failure(
            who=who,
            reason=death.reason,
            log_tail=tuple(death.log_tail),
            child_exit_code=death.exit_code,
            time=iso(self._wall()),
        )
        self._end("failed", f"{who}: {death.reason}", exit_code, failure=failure.model_dump_json())
        self._events.add("failed", who, death.reason)

    def stop(self, reason: str) -> None:
        if not self.over:
            if not self.ending:
                self._ends_since = self._clock()
            self._end("stopping", reason, EXIT_STOPPED)
            self._events.add("stopping", COORDINATOR, reason)

    def finish(self) -> None:
        self._end("done", "", EXIT_OK)
        self._events.add("done", COORDINATOR, "all epochs are trained and evaluated")

    def _end(self, state: str, reason: str, exit_code: int, **columns: Any) -> None:
        self._store.set_job(
            state=state, reason=reason, exit_code=exit_code, finished=self._wall(), **columns
        )
        self._ended_at = self._clock()
