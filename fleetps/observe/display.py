"""Three ways to show a job: live on a terminal, plain lines elsewhere, JSON lines for machines."""

import json
import logging
import sys
from typing import IO, Any, Protocol, cast

from rich.console import Console

from fleetps.coordinator.reports import Status
from fleetps.observe.live import LiveDisplay
from fleetps.observe.logs import JsonFormatter, LogFormat
from fleetps.observe.news import News, Periodic
from fleetps.observe.output import Lasting
from fleetps.observe.results import print_table, results_table
from fleetps.observe.words import epoch_line, progress_line

# Wide enough for the table of results where there is no terminal to ask.
_PLAIN_WIDTH = 110


class Display(Protocol):
    def note(self, text: str) -> None:
        """A sentence for people."""

    def update(self, status: Status) -> None:
        """The newest state of the job; call it as often as you like."""

    def results(self, status: Status) -> None:
        """The table at the end."""

    def close(self) -> None:
        """Stop drawing. May be called twice."""


def make_display(log_format: LogFormat, every: float) -> Display:
    """The display for this process's standard output; `every` is seconds between plain lines."""
    if log_format == "json":
        return JsonDisplay(every)
    output = cast(IO[str], Lasting(sys.stdout))
    console = Console(file=output)
    # FORCE_COLOR makes rich take anything for a terminal; a dumb one can't redraw.
    if sys.stdout.isatty() and console.is_interactive:
        return LiveDisplay(console)
    return PlainDisplay(every, Console(file=output, width=_PLAIN_WIDTH))


class PlainDisplay:
    """A line every few seconds."""

    def __init__(self, every: float, console: Console) -> None:
        self._console = console
        self._news = News()
        self._periodic = Periodic(every)

    def note(self, text: str) -> None:
        self._line(text)

    def update(self, status: Status) -> None:
        for trouble in self._news.troubles(status):
            self._line(trouble)
        for result in self._news.epochs(status):
            self._line(epoch_line(result, status.epochs))
        if status.job in ("waiting", "running") and self._periodic.due(status):
            self._line(progress_line(status))

    def results(self, status: Status) -> None:
        print_table(self._console, results_table(status))
        self._flush()

    def close(self) -> None: ...

    def _line(self, text: str) -> None:
        # Exactly this text: no folding, no markup in file names, at once even into a pipe.
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._flush()

    def _flush(self) -> None:
        self._console.file.flush()


class JsonDisplay:
    """The same as log records, one JSON object per line on standard output."""

    def __init__(self, every: float) -> None:
        handler = logging.StreamHandler(Lasting(sys.stdout))
        handler.setFormatter(JsonFormatter("job"))
        self._log = logging.getLogger("fleetps.progress")
        self._log.setLevel(logging.INFO)
        self._log.propagate = False  # it has a role of its own
        self._log.handlers = [handler]
        self._news = News()
        self._periodic = Periodic(every)

    def note(self, text: str) -> None:
        self._log.info(text)

    def update(self, status: Status) -> None:
        for trouble in self._news.troubles(status):
            self._record(trouble, "trouble", {})
        for result in self._news.epochs(status):
            self._record(
                epoch_line(result, status.epochs), "epoch", json.loads(result.model_dump_json())
            )
        if status.job in ("waiting", "running") and self._periodic.due(status):
            self._record(progress_line(status), "progress", _progress_fields(status))

    def results(self, status: Status) -> None:
        fields = json.loads(
            status.model_dump_json(include={"history", "accounting", "best_auc", "seconds", "job"})
        )
        self._record(f"{status.name}: {status.job}", "results", fields)

    def close(self) -> None: ...

    def _record(self, text: str, event: str, fields: dict[str, Any]) -> None:
        self._log.info(text, extra={"fields": {"event": event, **fields}})


def _progress_fields(status: Status) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(
        status.model_dump_json(
            include={
                "job",
                "phase",
                "epoch",
                "epochs",
                "rows_done",
                "rows_total",
                "rows_per_second",
                "loss",
                "eta",
            }
        )
    )
    fields["workers"] = [json.loads(worker.model_dump_json()) for worker in status.workers]
    return fields
