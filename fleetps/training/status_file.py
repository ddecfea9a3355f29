"""The state of a local run in a file, for the agent that shows it: nobody serves HTTP there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetps.coordinator.protocol import Coordinator
from fleetps.system.regularly import regularly

STATUS_FILE = "status.json"
INTERVAL = 0.5  # seconds


@contextmanager
def status_file(service: Coordinator, path: Path) -> Iterator[None]:
    """Inside, the file is rewritten, by rename, twice a second; and at the end."""

    def write() -> None:
        partial = path.with_suffix(".partial")
        partial.write_text(service.status().model_dump_json())
        partial.replace(path)

    with regularly(write, INTERVAL, "status"):
        yield
