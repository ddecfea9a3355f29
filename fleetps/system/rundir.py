"""The directory of one run: who may use it, and what becomes of the run before.

runs/<name>/ holds job.json, result.json, coordinator.sqlite, events.jsonl, logs/, work/ and, of
earlier runs, previous-<time>/.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fleet_config.errors import TryAgain, UserError
from fleetps.system.lockfile import held, holder

_log = logging.getLogger(__name__)

_LOCK = "lock"
_PREVIOUS = "previous-"
# With less, a process that ended with an error has most likely found no room.
_LEAST_BYTES = 1_000_000
_POLL_SECONDS = 0.05


class RunDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def job_file(self) -> Path:
        return self.path / "job.json"

    @property
    def result_file(self) -> Path:
        return self.path / "result.json"

    def work(self, member: str) -> Path:
        """The current directory of a member's Paddle process, such as work/worker-1."""
        return self.path / "work" / member

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other run of this name out, until this process ends, however it ends."""
        self.create()
        with ExitStack() as stack:
            with self.writing():
                stack.enter_context(held(self.path / _LOCK, self._refusal))
            yield

    def wait_until_free(self, seconds: float) -> None:
        """Until the run that has just ended here lets go, for at most so long."""
        deadline = time.monotonic() + seconds
        while (process := holder(self.path / _LOCK)) is not None:
            if time.monotonic() > deadline:
                _log.warning("process %d still works in %s", process.pid, self.path)
                return
            time.sleep(_POLL_SECONDS)

    def _refusal(self, holder: str) -> TryAgain:
        return TryAgain(
            f"a job named {self.path.name} already runs in {self.path} (process {holder}): "
            "wait for its end, stop it, or give this one another job.name"
        )

    def set_aside_previous(self, kept: Path | None = None) -> Path | None:
        """Move what an earlier run left into previous-<time>/: no result is ever overwritten.

        `kept`: what stays where it is.
        """
        entries = (entry for entry in self.path.iterdir() if entry != kept)
        left = [entry for entry in entries if self._belongs_to_a_run(entry)]
        if not left:
            return None
        previous = self.path / f"{_PREVIOUS}{time.strftime('%Y%m%d-%H%M%S')}"
        while previous.exists():
            previous = previous.with_name(f"{previous.name}-again")
        with self.writing():
            previous.mkdir()
            for entry in left:
                entry.rename(previous / entry.name)
        return previous

    @staticmethod
    def _belongs_to_a_run(entry: Path) -> bool:
        return entry.name != _LOCK and not entry.name.startswith(_PREVIOUS)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What the operating system refuses inside becomes a sentence."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"can't write in the run directory {self.path}: {error.strerror}; "
                "make room there or set job.output to another directory"
            ) from None

    def is_full(self) -> bool:
        """Whether its disk has no room for what a run writes."""
        try:
            return shutil.disk_usage(self.path).free < _LEAST_BYTES
        except OSError:
            return False

    def create(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"{error.strerror}; set job.output to a directory that can be written"
            raise UserError(
                f"can't create the run directory {self.path}: {self.obstacle() or reason}"
            ) from None

    def obstacle(self) -> str:
        """The file in whose place a directory is wanted, and what to do; "": there is none."""
        # Path.exists() raises where it may not look.
        places = (self.path, *self.path.parents)
        there = next(place for place in places if os.path.exists(place))  # noqa: PTH110
        if there.is_dir():
            return ""
        return f"{there} is a file; move it away, or set job.output to another directory"
