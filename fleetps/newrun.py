"""What every host of a job does first: a display, the run directory, the data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleet_config.sections import SyntheticData
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
def new_run(job: Job, display: Display, stop: StopRequest) -> Iterator[RunDirectory]:
    """The job's data, and the run directory for this run alone: what was in it is set aside."""
    run = RunDirectory(job.run_dir)
    with run.locked():
        with stop.interrupting():
            ensure_dataset(job, display.note)
        previous = run.set_aside_previous()
        if previous is not None:
            display.note(f"the run before this one was moved to {previous}")
        yield run


def ensure_dataset(job: Job, note: Callable[[str], None]) -> Dataset:
    """Make the synthetic data set if it is asked for and missing; load what is there."""
    wanted = job.data.synthetic
    if wanted is None or job.data.path.exists():
        dataset = load_dataset(job.data.path)
        if wanted is not None:
            _check_made_as_wanted(dataset, wanted)
        return dataset
    # Only here, because it brings in numpy and pyarrow.
    from fleetps.data.synthetic import SyntheticSpec, make_synthetic  # noqa: PLC0415

    note(
        f"making synthetic data in {job.data.path}: "
        f"{wanted.rows:,} training and {wanted.test_rows:,} test rows"
    )
    return make_synthetic(job.data.path, SyntheticSpec(**wanted.model_dump()))


def _check_made_as_wanted(dataset: Dataset, wanted: SyntheticData) -> None:
    made = dataset.source.get("options", {})
    for key, value in wanted.model_dump().items():
        if made.get(key) != value:
            raise UserError(
                f"the data set in {dataset.path} was made with {key} {made.get(key, 'unknown')}, "
                f"but data.synthetic.{key} is {value}: remove that directory to have it made "
                "again, or choose another data.path"
            )
