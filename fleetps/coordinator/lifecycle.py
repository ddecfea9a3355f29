"""The state of the job as a whole: waiting, running, and how it ended. The first end wins."""

from __future__ import annotations

from typing import Any

from fleet_config.errors import EXIT_OK, EXIT_STOPPED, EXIT_TRY_AGAIN, EXIT_USER
from fleetps.coordinator.base import Base
from fleetps.coordinator.events import iso
from fleetps.coordinator.messages import JobState
from fleetps.coordinator.reports import Failure
from fleetps.coordinator.schema import JobRow

COORDINATOR = "coordinator"


class Lifecycle:
    def __init__(self, base: Base) -> None:
        self._store = base.store
        self._events = base.events
        self._clock = base.clock
        self._wall = base.wall
        # Deadlines count from here: after a restart everybody gets the full time again.
        self.phase_since = base.clock()
        self._ended_at = base.clock()

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
        )

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

    def fail(
        self,
        who: str,
        reason: str,
        *,
        exit_code: int = EXIT_TRY_AGAIN,
        log_tail: list[str] | None = None,
        child_exit_code: int | None = None,
    ) -> None:
        if self.over:
            return
        failure = Failure(
            who=who,
            reason=reason,
            log_tail=tuple(log_tail or ()),
            child_exit_code=child_exit_code,
            time=iso(self._wall()),
        )
        self._end("failed", f"{who}: {reason}", exit_code, failure=failure.model_dump_json())
        self._events.add("failed", who, reason)

    def fail_for_member(
        self, who: str, reason: str, log_tail: list[str] | None, child_exit_code: int | None
    ) -> None:
        """A child's exit code 2 says it was the user's mistake; of any other end nobody knows."""
        exit_code = EXIT_USER if child_exit_code == EXIT_USER else EXIT_TRY_AGAIN
        self.fail(
            who, reason, exit_code=exit_code, log_tail=log_tail, child_exit_code=child_exit_code
        )

    def stop(self, reason: str) -> None:
        if not self.over:
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
