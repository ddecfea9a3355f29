"""The live display on a terminal: epoch results, under them a bar and a line per worker."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fleetps.coordinator.reports import ServerStatus, Status, WorkerStatus
from fleetps.observe.news import News
from fleetps.observe.results import results_table
from fleetps.observe.words import checkpoint_line, count, decimals, duration, epoch_line, phase_line

# More members than fit on a screen are summed up in one line.
_MOST_MEMBERS = 16


class LiveDisplay:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._news = News()
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def update(self, status: Status) -> None:
        for trouble in self._news.troubles(status):
            self.note(trouble)
        for result in self._news.epochs(status):
            self.note(epoch_line(result, status.epochs))
        self._live.update(job_panel(status))

    def results(self, status: Status) -> None:
        self.close()
        self._console.print(results_table(status))

    def close(self) -> None:
        self._live.update(Text(""))
        self._live.stop()


def job_panel(status: Status) -> RenderableType:
    """What is drawn between two updates."""
    if status.job == "waiting":
        return Text(phase_line(status), style="bold")
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        Text(phase_line(status), style="bold"),
        ProgressBar(total=max(status.rows_total, 1), completed=status.rows_done, width=30),
        f"{count(status.rows_done)} of {count(status.rows_total)} rows",
        f"{count(status.rows_per_second)} rows/s",
        f"loss {decimals(status.loss)}",
        f"{duration(status.eta)} left",
    )
    workers, servers = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
    for worker in status.workers[:_MOST_MEMBERS]:
        workers.add_row(*_worker_cells(worker))
    for server in status.servers[:_MOST_MEMBERS]:
        servers.add_row(*_server_cells(server))
    stalled = [Text(status.stalled, style="bold yellow")] if status.stalled else []
    return Group(
        bar,
        *stalled,
        workers,
        *_more(status.workers, "workers"),
        servers,
        *_more(status.servers, "servers"),
        Text(f"  {checkpoint_line(status.checkpoint)}"),
    )


def _more(members: Sequence[object], what: str) -> list[Text]:
    hidden = len(members) - _MOST_MEMBERS
    return [Text(f"and {hidden} more {what}")] if hidden > 0 else []


def _worker_cells(worker: WorkerStatus) -> tuple[str, ...]:
    cells: tuple[str, ...] = (
        f"  worker {worker.rank}",
        worker.state,
        f"{count(worker.rows)} rows",
        f"{count(worker.rows_per_second)} rows/s",
        f"loss {decimals(worker.loss)}",
    )
    if worker.straggler:
        cells = (*cells, f"slow: {worker.step_seconds or 0:.3g} s for a batch")
    if worker.lead is None:
        return cells
    return (*cells, f"{count(worker.lead)} steps ahead, waited {worker.waited:.0f} s")


def _server_cells(server: ServerStatus) -> tuple[str, ...]:
    rows = [f"{count(rows)} rows in {table}" for table, rows in server.rows.items()]
    return (f"  server {server.rank}", server.state, ", ".join(rows))
