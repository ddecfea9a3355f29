"""One change of the state at a time, whole or not at all."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet_config.errors import FleetError, TryAgain
from fleetps.coordinator.base import Base
from fleetps.coordinator.parts import Parts


class Changes:
    """`lock` guards everything, reading too; `lost` is set when the state can't be kept."""

    def __init__(self, base: Base, parts: Parts, result_file: Path) -> None:
        self.lock = threading.RLock()
        # The disk is full or gone: whoever serves this had better end and say so.
        self.lost: TryAgain | None = None
        self._store = base.store
        self._events = base.events
        self._members = parts.members
        self._life = parts.life
        self._phases = parts.phases
        self._queue = parts.queue
        self._result = parts.result
        self._result_file = result_file
        self._result_written = False

    @contextmanager
    def change(self) -> Iterator[None]:
        """One transaction; at its end the job has gone on as far as it can."""
        with self.lock:
            try:
                with self._store.transaction():
                    yield
                    self._phases.advance()
                self._write_files()
            except FleetError:
                raise  # refused before anything was changed
            except BaseException as error:
                self._members.reload()
                self._queue.reload()
                if not isinstance(error, sqlite3.Error | OSError):
                    raise
                where = self._result_file.parent
                self.lost = TryAgain(f"the coordinator can't keep its state in {where}: {error}")
                raise self.lost from error

    def _write_files(self) -> None:
        self._events.write_out()
        if not self._result_written and self._life.row.state == "done":
            self._result.write(self._result_file)
            self._result_written = True
