"""The table at the end of a job."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleetps.coordinator.reports import Accounting, Status
from fleetps.observe.words import count, decimals, duration, epoch_speed


def print_table(console: Console, table: RenderableType) -> None:
    """In a file lines end with their last word, not with the blanks that fill them up."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def results_table(status: Status) -> RenderableType:
    """Metrics per epoch, then the sums that must add up."""
    table = Table(
        title=f"{status.name}: {status.job} after {duration(status.seconds)}", title_justify="left"
    )
    for heading in (
        "epoch",
        "AUC",
        "log loss",
        "calibration",
        "test rows",
        "train loss",
        "train rows",
        "rows/s",
    ):
        table.add_column(heading, justify="right")
    for result in status.history:
        table.add_row(
            str(result.epoch + 1),
            decimals(result.auc),
            decimals(result.log_loss),
            decimals(result.calibration, 3),
            count(result.evaluated_rows),
            decimals(result.train_loss),
            count(result.train_rows),
            epoch_speed(result),
        )
    lines = [*best_line(status), *accounting_lines(status.accounting)]
    return Group(table, *(Text(line) for line in lines))


def best_line(status: Status) -> list[str]:
    """The reached AUC beside the best one possible, where the data set knows it."""
    reached = [result.auc for result in status.history if result.auc is not None]
    if status.best_auc is None or not reached:
        return []
    return [f"best possible AUC on this data: {status.best_auc:.4f} (reached: {reached[-1]:.4f})"]


def accounting_lines(rows: Accounting) -> list[str]:
    """Both sums over the rows of all tasks, training and evaluation."""
    tasks = (
        f"rows: {count(rows.total)} in all tasks = {count(rows.done)} done "
        f"+ {count(rows.held)} in work + {count(rows.waiting)} waiting "
        f"+ {count(rows.quarantined)} quarantined"
    )
    if rows.skipped:
        tasks += f" + {count(rows.skipped)} skipped"
    leases = (
        f"rows: {count(rows.leased)} leased = {count(rows.done)} done + {count(rows.held)} in work "
        f"+ {count(rows.returned)} returned; {count(rows.repeated)} leased again"
    )
    return [tasks, leases]
