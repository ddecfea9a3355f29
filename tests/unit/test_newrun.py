"""What becomes of the run before this one: it is set aside, or gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from coordinator_rig import make_dataset, make_job

from fleet_config.job import Job
from fleetps.newrun import new_run
from fleetps.system.signals import StopRequest


class Notes:
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """An unfinished run with a checkpoint."""
    make_dataset(tmp_path / "data")
    run = tmp_path / "runs" / "test-job"
    (run / "checkpoints" / "000001-20260101T000000Z").mkdir(parents=True)
    (run / "coordinator.sqlite").write_bytes(b"")
    (run / "logs").mkdir()
    return run


def begin(job: Job, *, goes_on: bool = True) -> tuple[set[str], str]:
    """What is in the run directory afterwards, without locks and earlier runs; and what is said."""
    notes = Notes()
    with new_run(job, notes, StopRequest(), goes_on=goes_on):  # type: ignore[arg-type]
        names = {entry.name for entry in job.run_dir.iterdir()}
    return {name for name in names if not name.startswith(("lock", "previous-"))}, notes.said[0]


def test_an_unfinished_run_stays_where_it_is(tmp_path: Path, left: Path) -> None:
    names, said = begin(make_job(tmp_path))
    assert names == {"checkpoints", "coordinator.sqlite", "logs"}
    assert "holds an unfinished run: the job goes on from its last checkpoint" in said


def test_a_finished_one_is_set_aside(tmp_path: Path, left: Path) -> None:
    (left / "result.json").write_text("{}")
    names, said = begin(make_job(tmp_path))
    assert names == set()
    assert "was moved to" in said
    assert len(list(left.glob("previous-*/checkpoints/000001-*"))) == 1


def test_so_is_one_without_checkpoints_or_not_to_be_gone_on_with(
    tmp_path: Path, left: Path
) -> None:
    assert begin(make_job(tmp_path, checkpoint={"resume": "never"}))[0] == set()
    (left / "coordinator.sqlite").write_bytes(b"")
    assert begin(make_job(tmp_path))[0] == set()


def test_local_training_has_nothing_to_go_on_with(tmp_path: Path, left: Path) -> None:
    assert begin(make_job(tmp_path), goes_on=False)[0] == set()


@pytest.mark.parametrize("path", ["", "checkpoints", "checkpoints/000001-20260101T000000Z"])
@pytest.mark.parametrize("key", ["resume", "warm_start"])
def test_what_the_job_begins_with_stays(tmp_path: Path, left: Path, path: str, key: str) -> None:
    (left / "result.json").write_text("{}")
    settings = {"resume": "never", key: str(left / path)}
    assert begin(make_job(tmp_path, checkpoint=settings))[0] == {"checkpoints"}
