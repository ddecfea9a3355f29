"""What is done after each checkpoint, in a process of its own, and what people hear of it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from checkpoint_rig import job_of, make
from test_checkpoint_chains import history

from fleet_config.job import Job
from fleetps.checkpoint.mirror import Mirror
from fleetps.checkpoint.store import Checkpoints
from fleetps.checkpoint.upkeep import keep_up
from fleetps.coordinator.upkeep import Upkeep

SECONDS = 60.0


def job_with(tmp_path: Path, **checkpoint: Any) -> Job:
    return job_of(tmp_path, checkpoint=checkpoint)


def said(job: Job) -> list[tuple[str, str]]:
    return [(note.kind, note.text) for note in keep_up(job) if note.kind != "begins"]


def test_deltas_and_copies(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/mirror"
    job = job_with(tmp_path, full_every=3, mirror=url, keep=1)
    mirror = Mirror(url, "small")
    store = Checkpoints(job.checkpoint_dir)
    for number, tables in enumerate(history(job, 4), start=1):
        made = make(job, number, tables=tables)
        store.prune(1, full_every=3)
        ((kind, text),) = said(job)
        assert kind == "mirrored"
        assert text.startswith(f"copied {made.name} to {url}/small in ")
    assert said(job) == []
    assert [copy.manifest.number for copy in mirror.list()] == [4]


def test_a_mirror_that_fails_keeps_nothing_else_from_its_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = job_with(tmp_path, full_every=3, mirror=f"file://{tmp_path}/file/inside")
    for number, tables in enumerate(history(job, 3), start=1):
        make(job, number, tables=tables)
        ((kind, text),) = said(job)
        assert kind == "mirror-failed"
        assert text.endswith("; tried again after the next checkpoint")
    kinds = [one.manifest.kind for one in Checkpoints(job.checkpoint_dir).list()]
    assert kinds == ["full", "delta", "full"]


def test_deltas_that_can_not_be_written(tmp_path: Path) -> None:
    job = job_with(tmp_path, full_every=3, path=str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    ((kind, text),) = said(job)
    assert kind == "deltas-failed"
    assert text.startswith(
        f"checkpoints stay full: can't make deltas in {tmp_path}/file: Not a directory; make room"
    )


def events(upkeep: Upkeep) -> list[tuple[str, str]]:
    """Until there is nothing left to do."""
    found = list(upkeep.look())
    end = time.monotonic() + SECONDS
    while upkeep.busy:
        assert time.monotonic() < end
        time.sleep(0.02)
        found += upkeep.look()
    return found


def test_the_process(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/mirror"
    job = job_with(tmp_path, mirror=url)
    upkeep = Upkeep(job, job.run_dir)
    assert events(upkeep) == []
    made = make(job)
    upkeep.due()
    assert upkeep.busy
    ((kind, text),) = events(upkeep)
    assert (kind, text.split(" in ")[0]) == ("mirrored", f"copied {made.name} to {url}/small")
    shutil.rmtree(job.checkpoint_dir)
    job.checkpoint_dir.write_text("")
    upkeep.due()
    ((kind, text),) = events(upkeep)
    assert kind == "mirror-failed"
    assert "Not a directory" in text


def test_one_that_takes_too_long(tmp_path: Path) -> None:
    job = job_of(
        tmp_path,
        checkpoint={"full_every": 2},
        cluster={"servers": 2, "deadlines": {"upkeep": 5}},
    )
    now = [0.0]
    upkeep = Upkeep(job, job.run_dir, clock=lambda: now[0])
    upkeep.due()
    assert list(upkeep.look()) == []
    assert list(upkeep.look()) == []
    now[0] = 5.1
    ((kind, text),) = upkeep.look()
    assert kind == "upkeep-failed"
    assert text.endswith(" took more than 5 s (cluster.deadlines.upkeep)")
    assert not upkeep.busy


def test_one_that_is_stopped(tmp_path: Path) -> None:
    upkeep = Upkeep(job_with(tmp_path, full_every=2), tmp_path)
    upkeep.due()
    list(upkeep.look())
    upkeep.due()
    upkeep.stop()
    assert not upkeep.busy
    assert list(upkeep.look()) == []


@pytest.mark.parametrize("checkpoint", [{}, {"full_every": 1}])
def test_nothing_to_do(tmp_path: Path, checkpoint: dict[str, Any]) -> None:
    upkeep = Upkeep(job_with(tmp_path, **checkpoint), tmp_path)
    upkeep.due()
    assert not upkeep.busy


def test_a_process_that_can_not_start(tmp_path: Path) -> None:
    job = job_with(tmp_path, full_every=2)
    upkeep = Upkeep(job, job.run_dir)
    upkeep.due()
    (job.run_dir / "work/upkeep/report.jsonl").mkdir(parents=True)
    place = job.run_dir / "work/upkeep"
    assert events(upkeep) == [("upkeep-failed", f"{place}: can't be written: Is a directory")]


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    upkeep = Upkeep(job_with(tmp_path, full_every=2), tmp_path)
    upkeep.due()
    list(upkeep.look())
    assert upkeep._child is not None
    os.kill(upkeep._child.pid, signal.SIGKILL)
    ((kind, text),) = events(upkeep)
    assert kind == "upkeep-failed"
    assert ": killed by SIGKILL (by hand, or by the kernel when memory ran out)" in text
