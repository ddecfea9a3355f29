"""How numbers and states are said, the same in every display."""

from fleetps.coordinator.reports import CheckpointStatus, EpochResult, Status

UNKNOWN = "-"


def count(value: float) -> str:
    return f"{value:,.0f}"


def decimals(value: float | None, digits: int = 4) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def phase_line(status: Status) -> str:
    """Where the job is: `epoch 1/2 train`, or who is still missing."""
    if status.job == "waiting":
        return (
            f"waiting for {', '.join(status.missing)}"
            if status.missing
            else "waiting for everybody"
        )
    if status.job != "running":
        return status.job
    if status.phase == "finish":
        return "finishing"
    if status.phase == "rendezvous" and status.missing:
        return f"generation {status.generation}: waiting for {', '.join(status.missing)}"
    mode = "" if status.mode == "async" else f" ({status.mode})"
    return f"epoch {min(status.epoch + 1, status.epochs)}/{status.epochs} {status.phase}{mode}"


def progress_line(status: Status) -> str:
    """One line of progress for logs and plain output."""
    if status.job == "waiting":
        return phase_line(status)
    share = status.rows_done / status.rows_total if status.rows_total else 0.0
    parts = [
        phase_line(status),
        f"{count(status.rows_done)} of {count(status.rows_total)} rows ({share:.0%})",
        f"{count(status.rows_per_second)} rows/s",
        f"loss {decimals(status.loss)}",
        f"{duration(status.eta)} left",
    ]
    if status.phase == "evaluate":
        parts.insert(
            1, f"{count(status.phase_rows_done)} of {count(status.phase_rows_total)} test rows"
        )
    return ", ".join(parts)


def checkpoint_line(last: CheckpointStatus) -> str:
    """The last checkpoint, and whether there is trouble with the next."""
    if not last.number:
        line = "no checkpoint yet"
    else:
        line = (
            f"checkpoint {last.number}: {count(last.rows)} rows, {duration(last.age)} ago, "
            f"pause {last.pause:.1f} s"
        )
    return f"{line}; {last.failures} failed since: {last.reason}" if last.failures else line


def epoch_line(result: EpochResult, epochs: int) -> str:
    """The result of one epoch in one line."""
    metrics = "not evaluated"
    if result.evaluated_rows:
        metrics = (
            f"AUC {decimals(result.auc)}, log loss {decimals(result.log_loss)}, "
            f"calibration {decimals(result.calibration, 3)} "
            f"({count(result.evaluated_rows)} test rows)"
        )
    return (
        f"epoch {result.epoch + 1}/{epochs}: {metrics}; train loss {decimals(result.train_loss)} "
        f"({count(result.train_rows)} rows, {epoch_speed(result)} rows/s)"
    )


def epoch_speed(result: EpochResult) -> str:
    return count(result.train_rows / result.seconds) if result.seconds > 0 else UNKNOWN
