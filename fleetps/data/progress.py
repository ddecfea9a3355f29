"""Progress of a long run over files: a bar on a terminal, otherwise a plain line now and then."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_LINE_SECONDS = 10.0


class Meter:
    """Told how many bytes were read and how many rows were handled."""

    def __init__(self, what: str, total_bytes: int, console: Console, bar: Progress | None) -> None:
        self._what = what
        self._total = max(total_bytes, 1)
        self._console = console
        self._bar = bar
        self._task = bar.add_task(what, total=self._total, speed="") if bar else None
        self._start = self._shown = time.monotonic()
        self._bytes = 0
        self._rows = 0

    def advance(self, count: int) -> None:
        """Note bytes read."""
        self._bytes += count
        self._show()

    def rows(self, count: int) -> None:
        """Note rows done."""
        self._rows += count
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=self._bytes, speed=self._speed(now))
        elif now - self._shown >= _LINE_SECONDS:
            self._shown = now
            share = min(self._bytes / self._total, 1.0)
            line = f"{self._what}: {share:.0%} {self._speed(now)}"
            self._console.print(line.rstrip(), highlight=False)

    def _speed(self, now: float) -> str:
        if not self._rows:
            return ""
        speed = self._rows / max(now - self._start, 1e-3)
        return f"{self._rows:,} rows, {speed:,.0f} rows/s"


@contextmanager
def meter(what: str, total_bytes: int) -> Iterator[Meter]:
    """Show progress on standard error while the block runs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Meter(what, total_bytes, console, None)
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        console=console,
    ) as bar:
        yield Meter(what, total_bytes, console, bar)
