"""What becomes of the run before this one: it is set aside, or gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from coordinator_rig import Rig, make_dataset, make_job

from fleet_config.errors import UserError
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


def test_one_that_only_lacks_its_result_stays(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.assemble()
    rig.work("w0", "w1")
    rig.service.heartbeat("w0", "exited")
    rig.service.heartbeat("w1", "exited")
    rig.service.close()
    (rig.job.run_dir / "result.json").unlink()
    names, said = begin(rig.job)
    assert "coordinator.sqlite" in names
    assert "holds a run that is done, but its result is still to be written" in said


def test_so_is_one_without_checkpoints_or_not_to_be_gone_on_with(
    tmp_path: Path, left: Path
) -> None:
    assert begin(make_job(tmp_path, checkpoint={"resume": "never"}))[0] == set()
    (left / "coordinator.sqlite").write_bytes(b"")
    assert begin(make_job(tmp_path))[0] == set()


def test_local_training_has_nothing_to_go_on_with(tmp_path: Path, left: Path) -> None:
    assert begin(make_job(tmp_path), goes_on=False)[0] == set()


@pytest.fixture
def begun(tmp_path: Path) -> Job:
    """A job of two epochs that has ended after a checkpoint."""
    rig = Rig(tmp_path, job={"epochs": 2}, checkpoint={"every": {"epochs": 1}})
    rig.assemble()
    while "checkpoint" not in rig.kinds():
        for worker in ("w0", "w1"):
            rig.step(worker)
    rig.service.close()
    return rig.job


@pytest.mark.parametrize("path", ["", "checkpoints", "checkpoints/000001-*"])
@pytest.mark.parametrize("key", ["resume", "warm_start"])
def test_what_the_job_begins_with_stays(tmp_path: Path, begun: Job, path: str, key: str) -> None:
    (place,) = begun.run_dir.glob(path) if path else [begun.run_dir]
    checkpoint = {"resume": "never", key: str(place), "every": {"epochs": 1}}
    job = make_job(tmp_path, job={"epochs": 2}, checkpoint=checkpoint)
    assert begin(job)[0] == {"checkpoints"}


def test_nothing_is_moved_for_what_can_not_begin(tmp_path: Path, begun: Job) -> None:
    before = sorted(begun.run_dir.iterdir())
    nowhere = make_job(tmp_path, checkpoint={"resume": str(tmp_path / "nowhere")})
    with pytest.raises(UserError, match="nowhere: is not a checkpoint"):
        begin(nowhere)
    tables = {"embedding": {"dim": 3}}
    warm = {"warm_start": str(begun.run_dir), "resume": "never"}
    unfit = make_job(tmp_path, checkpoint=warm, tables=tables)
    with pytest.raises(UserError, match=r"tables\.embedding\.dim"):
        begin(unfit)
    left = [entry for entry in sorted(begun.run_dir.iterdir()) if entry.name != "lock"]
    assert left == before


def test_data_that_were_not_made_by_it(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data")
    synthetic = {"path": str(tmp_path / "data"), "synthetic": {"rows": 10, "test_rows": 10}}
    with pytest.raises(UserError, match=r"is not a synthetic one: remove data\.synthetic"):
        begin(make_job(tmp_path, data=synthetic))
