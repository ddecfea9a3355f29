"""Lines of many hosts, put in the order of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from fleetps.logbook.files import TIME
from fleetps.logbook.line import Line

_TOGETHER_SECONDS = 0.5


class InOrder:
    """Context in which lines come; shown at its end, or `at_once`, those of each moment sorted."""

    def __init__(self, show: Callable[[Line], None], *, at_once: bool) -> None:
        self._show = show
        self._at_once = at_once
        self._lines: list[Line] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, line: Line) -> None:
        self._lines.append(line)

    async def __aenter__(self) -> InOrder:
        if self._at_once:
            self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._flush()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_TOGETHER_SECONDS)
            self._flush()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        for line in sorted(lines, key=TIME):
            self._show(line)
