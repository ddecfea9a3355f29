"""The process that makes deltas and copies of checkpoints while training goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fleet_config.job import Job
from fleetps.checkpoint.upkeep import Note
from fleetps.system.logtail import tail
from fleetps.system.process import Child, describe_exit

_LABEL = "upkeep"
_KILL_SECONDS = 5.0


class Upkeep:
    """One round after each checkpoint, one at a time; what fails fails no job.

    `look` is called by one thread that lives as long as the process: the round's life is bound to
    it.
    """

    def __init__(
        self, job: Job, run_dir: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._job = job
        self._work = run_dir / "work" / _LABEL
        self._log = run_dir / "logs" / f"{_LABEL}.log"
        self._clock = clock
        self._seen: str | None = None
        self._generation = 0
        self._child: Child | None = None
        self._since = 0.0

    def busy(self, newest: str) -> bool:
        """A round runs or is to begin; for `newest` see `look`."""
        is_new = self._seen is not None and newest != self._seen
        return self._child is not None or (is_new and self._job.checkpoint.has_upkeep)

    def look(self, newest: str, generation: int) -> Iterator[tuple[str, str]]:
        """See after the round; yields kind and text of each event that people should know of.

        newest: name of the last checkpoint; a round begins with each that wasn't there when this
            was called for the first time.
        generation: of the job; when one begins, a checkpoint is loaded and nothing else done.
        """
        if self._seen is None or generation != self._generation:
            self.stop()
            self._seen, self._generation = newest, generation
        if self._child is not None:
            yield from self._watch(self._child)
        if self._child is None and self.busy(newest):
            self._seen = newest
            try:
                self._child = self._start()
            except OSError as error:
                yield "upkeep-failed", f"{self._work}: can't be written: {error.strerror}"

    def stop(self) -> None:
        """No round runs any more; it is made up for after the next checkpoint."""
        if self._child is not None:
            _end(self._child)
            self._child = None

    @property
    def _report(self) -> Path:
        return self._work / "report.jsonl"

    def _start(self) -> Child:
        self._work.mkdir(parents=True, exist_ok=True)
        job_file = self._work / "job.json"
        job_file.write_text(self._job.model_dump_json(), encoding="utf-8")
        self._report.unlink(missing_ok=True)
        self._since = self._clock()
        command = [sys.executable, "-m", "fleetps.checkpoint.upkeep"]
        command += ["--job", str(job_file), "--report", str(self._report)]
        return Child(_LABEL, command, log=self._log)

    def _watch(self, child: Child) -> Iterator[tuple[str, str]]:
        code = child.poll()
        deadline = self._job.cluster.deadlines.upkeep
        late = code is None and self._clock() - self._since > deadline
        if code is None and not late:
            return
        notes = self._notes()
        for note in notes:
            if note.kind != "begins":
                yield note.kind, note.text
        doing = notes[-1].text if notes else "starting"
        if late:
            sentence = f"{doing} took more than {deadline:g} s (cluster.deadlines.upkeep)"
            yield "upkeep-failed", sentence
            _end(child)
        elif code:
            last = "".join(tail(self._log, 1))
            yield "upkeep-failed", f"{doing}: {describe_exit(code)} {last}".rstrip()
        self._child = None

    def _notes(self) -> list[Note]:
        try:
            lines = self._report.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        return [Note.model_validate_json(line) for line in lines if line.endswith(b"\n")]


def _end(child: Child) -> None:
    child.kill()
    child.wait(_KILL_SECONDS)
