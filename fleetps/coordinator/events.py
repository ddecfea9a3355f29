"""The append-only record of what happened: a table, and the same as JSON lines for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from fleetps.coordinator.messages import Event, Events
from fleetps.coordinator.store import Store

_log = logging.getLogger(__name__)
_MOST = 1000


class EventLog:
    """`add` in a transaction, `write_out` after it: the file never tells what was rolled back."""

    def __init__(self, store: Store, path: Path, wall: Callable[[], float]) -> None:
        self._store = store
        self._path = path
        self._wall = wall
        self._written = _last_id(path)
        self._known = self._written
        self.write_out(force=True)

    def add(self, kind: str, who: str, text: str) -> None:
        self._known = self._store.add_event(iso(self._wall()), kind, who, text)
        _log.info("%s: %s", who, text, extra={"fields": {"event": kind, "who": who}})

    def write_out(self, *, force: bool = False) -> None:
        if self._known == self._written and not force:
            return
        with self._path.open("a", encoding="utf-8") as file:
            while events := self.after(self._written).events:
                file.writelines(
                    json.dumps(event.model_dump(), ensure_ascii=False) + "\n" for event in events
                )
                self._written = events[-1].id
        self._known = self._written

    def after(self, event_id: int) -> Events:
        rows = self._store.events(event_id, _MOST)
        return Events(
            events=tuple(
                Event(id=i, time=time, kind=kind, who=who, text=text)
                for i, time, kind, who, text in rows
            )
        )


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _last_id(path: Path) -> int:
    """The id of the file's last whole line; a line cut short by a power cut is taken off."""
    if not path.exists():
        return 0
    lines = path.read_bytes().splitlines(keepends=True)
    while lines and not lines[-1].endswith(b"\n"):
        lines.pop()
        path.write_bytes(b"".join(lines))
    return int(json.loads(lines[-1])["id"]) if lines else 0
