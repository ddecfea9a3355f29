"""The process that makes deltas and copies of checkpoints while training goes on."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fleet_config.job import Job
from fleetps.checkpoint.mirror import place_of
from fleetps.checkpoint.upkeep import DELTAS, Note
from fleetps.system.logtail import tail
from fleetps.system.process import Child, describe_exit

_LABEL = "upkeep"
_KILL_SECONDS = 5.0
# A round that failed is made again after so many seconds, then after the next checkpoint.
_PAUSES = (10.0, 30.0, 90.0)


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
        self._seen = ""  # the checkpoint of the last round
        self._child: Child | None = None
        self._since = 0.0
        self._time_left = math.inf
        self._hurried = False  # the round was begun when the job stopped already
        self._failures = 0  # in a row, of rounds for the same checkpoint
        self._again_at: float | None = None

    def busy(self, newest: str) -> bool:
        """A round runs or is to begin; for `newest` see `look`."""
        return self._child is not None or self._again_at is not None or self._is_new(newest)

    def _is_new(self, newest: str) -> bool:
        wanted = self._job.checkpoint
        pays = wanted.mirror is not None if self._hurries else wanted.has_upkeep
        return newest != self._seen and pays

    def look(self, newest: str, time_left: float = math.inf) -> Iterator[tuple[str, str]]:
        """See after the round; yields kind and text of each event that people should know of.

        newest: name of the last checkpoint, "" if there is none. A round begins with each, that of
            an earlier run too: nobody may have made up for what failed at its end.
        time_left: seconds, if the job stops.
        """
        self._time_left = time_left
        if self._hurries and self._delays(newest):
            self.stop()
        if self._child is not None:
            yield from self._watch(self._child)
        if self._is_new(newest):
            self._failures, self._again_at = 0, None
        elif self._again_at is None:
            return
        elif (pause := self._again_at - self._clock()) > time_left:
            self._again_at = None
            yield "upkeep-failed", f"the job stops before the next try{self._later()}"
            return
        elif pause > 0:
            return
        if self._child is None:
            self._seen, self._again_at = newest, None
            try:
                self._child = self._start()
            except OSError as error:
                sentence = f"{self._work}: can't be written: {error.strerror}"
                yield "upkeep-failed", sentence + self._try_again()

    @property
    def _hurries(self) -> bool:
        """The job stops."""
        return self._time_left < math.inf

    def _delays(self, newest: str) -> bool:
        """The round was begun before the job stopped, and doesn't copy the last checkpoint yet."""
        if self._child is None or self._hurried:
            return False
        notes = self._notes()
        return self._seen != newest or not notes or notes[-1].text == DELTAS

    def _try_again(self) -> str:
        """What is said of a round that failed."""
        if self._failures == len(_PAUSES):
            return self._later()
        pause = _PAUSES[self._failures]
        self._failures += 1
        self._again_at = self._clock() + pause
        return f"; tried again in {pause:g} s"

    def _later(self) -> str:
        """The same where it isn't made again by itself."""
        when = "when the job is started again" if self._hurries else "after the next checkpoint"
        sentence, mirror = f"; tried again {when}", self._job.checkpoint.mirror
        if mirror is None:
            return sentence
        here, there = self._job.checkpoint_dir / self._seen, place_of(mirror, self._job.job.name)
        return f"{sentence}, or copy {here} to {there}/{self._seen} by hand"

    def stop(self) -> None:
        """No round runs any more; the next look begins it anew."""
        self._again_at, self._seen = None, ""
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
        self._hurried = self._hurries
        command += ["--hurry"] * self._hurried
        return Child(_LABEL, command, log=self._log)

    def _watch(self, child: Child) -> Iterator[tuple[str, str]]:
        code = child.poll()
        deadline = self._job.cluster.deadlines.upkeep
        late = self._clock() - self._since > deadline or self._time_left <= 0
        if code is None and not late:
            return
        notes = self._notes()
        for note in notes:
            if note.kind == "mirror-failed":
                yield note.kind, note.text + self._try_again()
            elif note.kind != "begins":
                yield note.kind, note.text
        doing = notes[-1].text if notes else "starting"
        if code is None:
            limit = f"it took more than {deadline:g} s (cluster.deadlines.upkeep)"
            why = "the job stops" if self._time_left <= 0 else limit
            yield "upkeep-failed", f"{doing} was broken off: {why}{self._later()}"
            _end(child)
        elif code:
            last = "".join(tail(self._log, 1))
            sentence = f"{doing}: {describe_exit(code)} {last}".rstrip()
            yield "upkeep-failed", sentence + self._try_again()
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
