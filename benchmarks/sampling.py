"""Watches a job in the background: progress, events, memory."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import psutil
from launched import AGENT, COORDINATOR, Job

from fleetps.coordinator.reports import Status
from fleetps.system.regularly import regularly

_PROGRESS_SECONDS = 0.5
_MEMORY_SECONDS = 10.0
# Every process grows at its start.
_YOUNG_SECONDS = 60.0
_FEW = 6
_MEGABYTE = 1e6
# Events that say what a fault led to.
_TELLING = {
    "generation",
    "worker-lost",
    "worker-left",
    "lost",
    "left",
    "restarted",
    "checkpoint-lost",
    "checkpoint-failed",
    "checkpoint-damaged",
    "lease-expired",
    "no-progress",
    "straggler",
}


@dataclass(frozen=True)
class Thirds:
    """Megabytes, medians of the first and the last third of a process's life."""

    first: float
    last: float
    minutes: float


class Sampler:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._moved: list[float] = []  # when rows were handled
        self._last: tuple[int, ...] = ()
        self._weighed = 0.0
        self._memory: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)

    @contextmanager
    def running(self) -> Iterator[None]:
        with regularly(self._look, _PROGRESS_SECONDS, "sampler"):
            yield

    def _look(self) -> None:
        status = self._job.status()
        if status is not None and self._advanced(status):
            self._moved.append(time.monotonic())
        if time.monotonic() - self._weighed >= _MEMORY_SECONDS:
            self._weighed = time.monotonic()
            self._weigh()

    def _advanced(self, status: Status) -> bool:
        """Whether more rows of the same phase were handled, or a later phase has begun."""
        now = (status.generation, status.epoch, status.phase_rows_done)
        before, self._last = self._last, now
        return now[:2] == before[:2] and now[2] > before[2]

    def _weigh(self) -> None:
        for process in self._job.processes():
            with suppress(psutil.Error):
                name = _name(" ".join(process.cmdline()), process.environ())
                size = process.memory_info().rss / _MEGABYTE
                if name:
                    self._memory[name, process.pid].append((time.monotonic(), size))

    def between(self, start: float, end: float) -> tuple[list[str], float]:
        """What was told then, and the longest time without a row."""
        moved = [start, *(moment for moment in self._moved if start < moment < end), end]
        pause = max(after - before for before, after in pairwise(moved))
        return self._events(end - start), pause

    def _events(self, seconds: float) -> list[str]:
        """Of the last seconds: kinds, and whom they were about."""
        since = time.time() - seconds
        found: Counter[str] = Counter()
        for line in (self._job.run / "events.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["kind"] in _TELLING and _seconds(event["time"]) >= since:
                found[f"{event['kind']} ({event['who']})"] += 1
        return [f"{what} x {times}" if times > 1 else what for what, times in found.items()]

    def memory(self) -> dict[str, Thirds]:
        """Of the processes that lived longest, of each kind."""
        longest: dict[str, list[tuple[float, float]]] = {}
        for (name, _), samples in self._memory.items():
            if len(samples) > len(longest.get(name, ())):
                longest[name] = samples
        found = {}
        for name, samples in longest.items():
            begun = samples[0][0] + _YOUNG_SECONDS
            sizes = [size for moment, size in samples if moment >= begun]
            if len(sizes) >= _FEW:
                third = len(sizes) // 3
                minutes = (samples[-1][0] - samples[0][0]) / 60
                first, last = (statistics.median(part) for part in (sizes[:third], sizes[-third:]))
                found[name] = Thirds(first, last, minutes)
        return found


def _name(command: str, environ: dict[str, str]) -> str:
    """Empty: not one whose memory is watched."""
    if COORDINATOR in command:
        return "the coordinator"
    if AGENT not in command:
        return "the launcher" if "main() launch" in command else ""
    if environ.get("ROLE") == "WORKER":
        return f"the agent of worker {environ['WORKER_INDEX']}"
    endpoints = environ["SERVER_ENDPOINTS"].split(",")
    return f"the agent of server {endpoints.index(environ['SERVER_ENDPOINT'])}"


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()
