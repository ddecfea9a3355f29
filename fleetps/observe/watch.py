"""Asking the coordinator for the job's status in the background."""

import logging
import threading

from fleet_config.errors import FleetError
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.reports import Status

_log = logging.getLogger(__name__)


class StatusWatch:
    """Keeps the newest status of the job, for a display."""

    def __init__(self, client: CoordinatorClient, every: float = 0.5) -> None:
        self._client = client
        self._every = every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)
        self.latest: Status | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def refresh(self) -> Status | None:
        """Ask now; what was known before where there is no answer."""
        try:
            self.latest = self._client.status()
        except FleetError as error:
            _log.debug("no status: %s", error)
        return self.latest

    def _run(self) -> None:
        while not self._end.is_set():
            self.refresh()
            self._end.wait(self._every)
