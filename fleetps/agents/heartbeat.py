"""The thread that talks to the coordinator while the main thread watches its child."""

import logging
import threading
import time

from fleet_config.errors import FleetError
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.messages import JobState
from fleetps.coordinator.reports import MemberState

_log = logging.getLogger(__name__)


class Heartbeat:
    """Says "still here" every few seconds and keeps the newest answer."""

    def __init__(self, client: CoordinatorClient, instance: str, every: float) -> None:
        self._client = client
        self._instance = instance
        self._every = every
        # What this member is, and in which generation: always said together.
        self._said: tuple[MemberState, int] = ("registered", 0)
        self.load: dict[str, float] | None = None
        self._wake = threading.Event()
        self._ends = False
        self._answered = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.answer: JobState | None = None
        self.trouble = ""  # why the last beat was not answered, if it was not

    def start(self) -> None:
        """Begin to beat, if it doesn't yet."""
        if self._thread.ident is None:
            self._answered = time.monotonic()
            self._thread.start()

    @property
    def state(self) -> MemberState:
        return self._said[0]

    def say(self, state: MemberState) -> None:
        """Report a new state at once."""
        self._said = (state, self._said[1])
        self._wake.set()

    def begin(self, generation: int) -> None:
        """This member has registered for a generation."""
        self._said = ("registered", generation)

    def silence(self) -> float:
        """Seconds since the coordinator last answered."""
        return time.monotonic() - self._answered

    def stop(self) -> bool:
        """No beat is sent after this returns; whether the coordinator answered until the end."""
        self._ends = True
        self._wake.set()
        if self.trouble:
            self._client.close()  # nobody answers: don't wait for it
        if self._thread.is_alive():
            self._thread.join()
        return not self.trouble

    def _run(self) -> None:
        while not self._ends:
            self._beat()
            self._wake.wait(self._every)
            self._wake.clear()

    def _beat(self) -> None:
        state, generation = self._said
        try:
            self.answer = self._client.heartbeat(self._instance, state, self.load, generation)
        except FleetError as error:
            self.trouble = str(error)
            if not self._ends:
                _log.warning("heartbeat: %s", error)
        else:
            self._answered = time.monotonic()
            self.trouble = ""
