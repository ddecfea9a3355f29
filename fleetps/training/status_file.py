"""The state of a local run in a file, for the agent that shows it: nobody serves HTTP there."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from fleetps.coordinator.protocol import Coordinator

STATUS_FILE = "status.json"
INTERVAL = 0.5  # seconds


class StatusFile:
    """Context in which the file is rewritten, by rename, twice a second and at the end."""

    def __init__(self, service: Coordinator, path: Path) -> None:
        self._service = service
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    def __enter__(self) -> StatusFile:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        while not self._over.wait(INTERVAL):
            self._write()

    def _write(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(self._service.status().model_dump_json())
        partial.replace(self._path)
