"""What people should hear of although nothing has failed yet."""

from __future__ import annotations

from fleetps.coordinator.events import EventLog

_MOST_KEPT = 20


class Notices:
    """Events that displays show too. `count`: how many there were since this process began."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self.count = 0
        self.sentences: tuple[str, ...] = ()

    def add(self, kind: str, who: str, text: str) -> None:
        self._events.add(kind, who, text)
        self.count += 1
        self.sentences = (*self.sentences, f"{who}: {text}")[-_MOST_KEPT:]
