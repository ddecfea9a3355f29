"""A display fed with the coordinator's status."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.reports import Failure, Status
from fleetps.observe.display import Display
from fleetps.observe.watch import StatusWatch


class JobView:
    """Asks in the background; `look()` from the main loop draws what came."""

    def __init__(self, client: CoordinatorClient, display: Display) -> None:
        self._watch = StatusWatch(client)
        self.display = display

    @contextmanager
    def running(self) -> Iterator["JobView"]:
        self._watch.start()
        try:
            yield self
        finally:
            self._watch.stop()

    def look(self) -> Status | None:
        status = self._watch.latest
        if status is not None:
            self.display.update(status)
        return status

    def refresh(self) -> Status | None:
        """The state of this moment, where the coordinator still answers."""
        self._watch.refresh()
        return self.look()

    def end(self, logs: Path) -> None:
        """How the job ended: the results, or the last words of whoever failed."""
        status = self.refresh()
        if status is None:
            return
        if status.job == "done":
            self.display.results(status)
        if status.failure is not None:
            show_failure(self.display, status.failure, logs)


def show_failure(display: Display, failure: Failure, logs: Path) -> None:
    """The last lines of the failed process, and where there are more."""
    if failure.log_tail:
        display.note(f"the last lines of {failure.who}:")
    for line in failure.log_tail:
        display.note(f"  {line}")
    display.note(f"logs of all processes: {logs}")
