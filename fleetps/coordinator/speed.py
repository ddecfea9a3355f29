"""Rows and losses as they are reported, for people: sliding windows, kept in memory only."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW_SECONDS = 10.0
# A rate over less than this says nothing.
_SHORTEST = 0.5
_MOST_CURVE_POINTS = 200


@dataclass
class Meter:
    """Reports of one worker, or of all. `rows`: training rows; evaluation only counts as speed."""

    rows: int = 0
    task: int | None = None
    extra: dict[str, float] = field(default_factory=dict)
    _handled: int = 0
    _loss_rows: int = 0
    _loss_sum: float = 0.0
    # (time, rows handled, training rows with a loss, their summed loss), all cumulative
    _samples: deque[tuple[float, int, int, float]] = field(default_factory=deque)

    def begin(self, now: float) -> None:
        """From now on it has work: the rate counts from here."""
        if not self._samples:
            self._sample(now)

    def add(self, now: float, rows: int, loss_sum: float, *, training: bool) -> None:
        self.begin(now)
        self._handled += rows
        if training:
            self.rows += rows
            self._loss_rows += rows
            self._loss_sum += loss_sum
        self._sample(now)

    def _sample(self, now: float) -> None:
        self._samples.append((now, self._handled, self._loss_rows, self._loss_sum))
        self._trim(now)  # nobody may ask for days

    def _trim(self, now: float) -> None:
        while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW_SECONDS:
            self._samples.popleft()

    def rate(self, now: float) -> float:
        """Rows a second; it falls when no more reports come."""
        self._trim(now)
        if not self._samples or now - self._samples[0][0] < _SHORTEST:
            return 0.0
        return (self._samples[-1][1] - self._samples[0][1]) / (now - self._samples[0][0])

    def loss(self, now: float) -> float | None:
        """The mean over the training rows in the window."""
        self._trim(now)
        if not self._samples:
            return None
        first, last = self._samples[0], self._samples[-1]
        rows = last[2] - first[2]
        return (last[3] - first[3]) / rows if rows else None


class Curve:
    """A value against something that only grows; thinned out so that it stays short."""

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []
        self._step = 1

    def add(self, at: int, value: float) -> None:
        if self._points and at < self._points[-1][0] + self._step:
            return
        self._points.append((at, value))
        if len(self._points) > _MOST_CURVE_POINTS:
            self._points = self._points[::2]
            self._step = max(self._points[-1][0] // (_MOST_CURVE_POINTS // 2), 1)

    def points(self) -> tuple[tuple[int, float], ...]:
        return tuple(self._points)
