"""What every host of a job does first: a display, the run directory, the data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleet_config.sections import SyntheticData
from fleetps.checkpoint.choose import check_wanted
from fleetps.checkpoint.store import Checkpoints
from fleetps.coordinator.runfiles import CHECKPOINTS, STATE_FILE, end_left
from fleetps.data.dataset import Dataset, load_dataset
from fleetps.observe.display import Display, make_display
from fleetps.system.rundir import RunDirectory
from fleetps.system.signals import StopRequest


@contextmanager
def shown(job: Job) -> Iterator[Display]:
    """A display on standard output, as the job file wants it."""
    display = make_display(job.observe.log_format, job.observe.progress_seconds)
    try:
        yield display
    finally:
        display.close()


@contextmanager
def new_run(
    job: Job, display: Display, stop: StopRequest, *, goes_on: bool = False
) -> Iterator[RunDirectory]:
    """The job's data, and the run directory for this run alone: what was in it is set aside.

    `goes_on`: except where an unfinished run has left checkpoints, or lacks its result only.
    """
    run = RunDirectory(job.run_dir)
    with run.locked():
        with stop.interrupting():
            dataset = ensure_dataset(job, display.note)
        if goes_on and (note := _unfinished(job, run)):
            display.note(f"{run.path} holds {note}")
            yield run
            return
        if goes_on:
            check_wanted(job, dataset)  # before anything is moved
        previous = run.set_aside_previous(_kept(job, run))
        if previous is not None:
            display.note(f"the run before this one was moved to {previous}")
        yield run


def _unfinished(job: Job, run: RunDirectory) -> str:
    """What the run before has left to be done; "": nothing, or it can't go on."""
    if run.result_file.exists():
        return ""
    end = end_left(run.path)
    if end is not None and end.job == "done":
        return "a run that is done, but its result is still to be written"
    left = (run.path / STATE_FILE).exists() or (run.path / CHECKPOINTS).exists()
    if job.checkpoint.resume != "auto" or not left:
        return ""
    if not Checkpoints(job.checkpoint_dir).entries():
        return ""
    return (
        "an unfinished run: the job goes on from its last checkpoint "
        "(checkpoint.resume: never begins anew)"
    )


def _kept(job: Job, run: RunDirectory) -> Path | None:
    """The checkpoints, if the job is to begin with one of them."""
    directory = run.path / CHECKPOINTS
    wanted = [job.checkpoint.resume, job.checkpoint.warm_start]
    paths = [path.absolute() for path in wanted if isinstance(path, Path)]
    inside = any(run.path == path or directory in (path, *path.parents) for path in paths)
    return directory if inside else None


def ensure_dataset(job: Job, note: Callable[[str], None]) -> Dataset:
    """Make the synthetic data set if it is asked for and missing; load what is there."""
    wanted = to_be_made(job)
    if wanted is None:
        return checked_dataset(job)
    # Only here, because it brings in numpy and pyarrow.
    from fleetps.data.synthetic import SyntheticSpec, make_synthetic  # noqa: PLC0415

    note(
        f"making synthetic data in {job.data.path}: "
        f"{wanted.rows:,} training and {wanted.test_rows:,} test rows"
    )
    return make_synthetic(job.data.path, SyntheticSpec(**wanted.model_dump()))


def to_be_made(job: Job) -> SyntheticData | None:
    """What the data set is to be made of, if it is a synthetic one and missing."""
    return None if job.data.path.exists() else job.data.synthetic


def checked_dataset(job: Job) -> Dataset:
    """The data set that is there.

    Raises:
        UserError: there is none, it is damaged, or it is not the one that the job asks for.
    """
    dataset = load_dataset(job.data.path)
    if job.data.synthetic is not None:
        _check_made_as_wanted(dataset, job.data.synthetic)
    return dataset


def _check_made_as_wanted(dataset: Dataset, wanted: SyntheticData) -> None:
    if dataset.source.get("kind") != "synthetic":
        raise UserError(
            f"the data set in {dataset.path} is not a synthetic one: remove data.synthetic from "
            "the job file, or choose another data.path"
        )
    made = dataset.source.get("options", {})
    for key, value in wanted.model_dump().items():
        if made.get(key) != value:
            raise UserError(
                f"the data set in {dataset.path} was made with {key} {made.get(key, 'unknown')}, "
                f"but data.synthetic.{key} is {value}: remove that directory to have it made "
                "again, or choose another data.path"
            )
