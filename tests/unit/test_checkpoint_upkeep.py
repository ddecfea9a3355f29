"""What is done after each checkpoint, in a process of its own, and what people hear of it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
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


def test_in_a_hurry(tmp_path: Path) -> None:
    """The job stops: copies are more urgent than deltas, and those under way least."""
    url = f"file://{tmp_path}/mirror"
    job = job_with(tmp_path, full_every=3, mirror=url)
    store = Checkpoints(job.checkpoint_dir)
    upkeep = Upkeep(job, tmp_path)
    made = [make(job, number, tables=tables) for number, tables in enumerate(history(job, 2), 1)]
    assert list(upkeep.look(made[0].name)) == []
    process = upkeep._child
    assert process is not None
    found = []
    end = time.monotonic() + SECONDS
    while upkeep.busy(made[1].name):
        assert time.monotonic() < end
        found += upkeep.look(made[1].name, SECONDS)
        assert process.poll() is not None
        time.sleep(0.02)
    assert [kind for kind, _ in found] == ["mirrored"]
    assert {one.manifest.kind for one in store.list()} == {"full"}
    assert [copy.manifest.kind for copy in Mirror(url, "small").list()] == ["full", "full"]


def test_a_mirror_that_fails_keeps_nothing_else_from_its_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = job_with(tmp_path, full_every=3, mirror=f"file://{tmp_path}/file/inside")
    for number, tables in enumerate(history(job, 3), start=1):
        make(job, number, tables=tables)
        ((kind, _),) = said(job)
        assert kind == "mirror-failed"
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


def fast() -> float:
    return 100 * time.monotonic()


AGAIN = [f"; tried again {when}" for when in ("in 10 s", "in 30 s", "in 90 s")]
LATER = "; tried again after the next checkpoint"


def events(upkeep: Upkeep, newest: str) -> list[tuple[str, str]]:
    """Until there is nothing left to do."""
    found = list(upkeep.look(newest))
    end = time.monotonic() + SECONDS
    while upkeep.busy(newest):
        assert time.monotonic() < end
        time.sleep(0.02)
        found += upkeep.look(newest)
    return found


def test_the_process(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/mirror"
    job = job_with(tmp_path, mirror=url)
    upkeep = Upkeep(job, job.run_dir, fast)
    assert events(upkeep, "") == []
    made = make(job)
    assert upkeep.busy(made.name)
    ((kind, text),) = events(upkeep, made.name)
    assert (kind, text.split(" in ")[0]) == ("mirrored", f"copied {made.name} to {url}/small")
    assert events(upkeep, made.name) == []
    shutil.rmtree(job.checkpoint_dir)
    job.checkpoint_dir.write_text("")
    failed = events(upkeep, "000002")
    by_hand = f", or copy {job.checkpoint_dir}/000002 to {url}/small/000002 by hand"
    for (kind, text), again in zip(failed, [*AGAIN, LATER + by_hand], strict=True):
        assert kind == "mirror-failed"
        assert "Not a directory" in text
        assert text.endswith(again)


def test_a_mirror_that_is_there_again(tmp_path: Path) -> None:
    """After the last checkpoint of a job nobody else would make up for it."""
    url = f"file://{tmp_path}/file/mirror"
    job = job_with(tmp_path, mirror=url)
    away = tmp_path / "file"
    away.write_text("")
    upkeep = Upkeep(job, job.run_dir, fast)
    assert events(upkeep, "") == []
    made = make(job)
    found: list[tuple[str, str]] = []
    end = time.monotonic() + SECONDS
    while upkeep.busy(made.name):
        assert time.monotonic() < end
        time.sleep(0.02)
        found += upkeep.look(made.name)
        if found and not away.is_dir():
            away.unlink(missing_ok=True)
    assert [kind for kind, _ in found] == ["mirror-failed", "mirrored"]
    assert [copy.name for copy in Mirror(url, "small").list()] == [made.name]


def begun(job: Job, directory: Path, clock: Callable[[], float] = time.monotonic) -> Upkeep:
    """A round is running."""
    upkeep = Upkeep(job, directory, clock)
    assert list(upkeep.look("")) == []
    assert list(upkeep.look("000001")) == []
    assert upkeep.busy("000001")
    return upkeep


def test_one_that_takes_too_long(tmp_path: Path) -> None:
    job = job_of(
        tmp_path,
        checkpoint={"full_every": 2},
        cluster={"servers": 2, "deadlines": {"upkeep": 5}},
    )
    now = [0.0]
    upkeep = begun(job, tmp_path, lambda: now[0])
    now[0] = 5.1
    ((kind, text),) = upkeep.look("000001")
    assert kind == "upkeep-failed"
    assert text.endswith(
        f" was broken off: it took more than 5 s (cluster.deadlines.upkeep){LATER}"
    )
    assert not upkeep.busy("000001")


STOPS = "; tried again when the job is started again"


def test_a_job_that_stops_while_it_runs(tmp_path: Path) -> None:
    upkeep = begun(job_with(tmp_path, mirror=f"file://{tmp_path}/mirror"), tmp_path)
    process = upkeep._child
    assert process is not None
    assert list(upkeep.look("000001", 5)) == []
    ((kind, text),) = upkeep.look("000001", 0)
    assert kind == "upkeep-failed"
    here, there = f"{tmp_path}/runs/small/checkpoints/000001", f"file://{tmp_path}/mirror/small"
    by_hand = f", or copy {here} to {there}/000001 by hand"
    assert text.endswith(f" was broken off: the job stops{STOPS}{by_hand}")
    assert process.poll() is not None
    assert not upkeep.busy("000001")


def test_a_job_that_stops_before_the_next_try(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("")
    upkeep = Upkeep(job_with(tmp_path, mirror=f"file://{tmp_path}/mirror"), tmp_path)
    ((_, text),) = upkeep.look("000001", 30)
    assert text.endswith("; tried again in 10 s")
    assert list(upkeep.look("000001", 29)) == []
    assert upkeep.busy("000001")
    ((kind, text),) = upkeep.look("000001", 9)
    assert kind == "upkeep-failed"
    assert text.startswith(f"the job stops before the next try{STOPS}, or copy ")
    assert not upkeep.busy("000001")


def test_one_that_has_to_wait(tmp_path: Path) -> None:
    """A checkpoint is loaded meanwhile."""
    upkeep = begun(job_with(tmp_path, full_every=2), tmp_path)
    process = upkeep._child
    assert process is not None
    upkeep.stop()
    assert process.poll() is not None
    assert upkeep.busy("000001")
    assert list(upkeep.look("000001")) == []
    assert upkeep._child is not None
    upkeep.stop()


def test_that_of_an_earlier_run(tmp_path: Path) -> None:
    """Its coordinator ended before it was copied."""
    url = f"file://{tmp_path}/mirror"
    job = job_with(tmp_path, mirror=url)
    made = make(job)
    for copies in (1, 0):
        found = events(Upkeep(job, job.run_dir), made.name)
        assert [kind for kind, _ in found] == ["mirrored"] * copies


def test_deltas_are_not_waited_for_when_the_job_stops(tmp_path: Path) -> None:
    upkeep = begun(job_with(tmp_path, full_every=2), tmp_path)
    process = upkeep._child
    assert process is not None
    assert list(upkeep.look("000002", SECONDS)) == []
    assert process.poll() is not None
    assert not upkeep.busy("000002")


@pytest.mark.parametrize("checkpoint", [{}, {"full_every": 1}])
def test_nothing_to_do(tmp_path: Path, checkpoint: dict[str, Any]) -> None:
    upkeep = Upkeep(job_with(tmp_path, **checkpoint), tmp_path)
    assert events(upkeep, "") == []
    assert not upkeep.busy("000001")


def test_a_process_that_can_not_start(tmp_path: Path) -> None:
    job = job_with(tmp_path, full_every=2)
    upkeep = Upkeep(job, job.run_dir, fast)
    assert events(upkeep, "") == []
    place = job.run_dir / "work/upkeep"
    (place / "report.jsonl").mkdir(parents=True)
    sentence = f"{place}: can't be written: Is a directory"
    failed = [("upkeep-failed", sentence + again) for again in (*AGAIN, LATER)]
    assert events(upkeep, "000001") == failed


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    upkeep = begun(job_with(tmp_path, full_every=2), tmp_path, fast)
    assert upkeep._child is not None
    os.kill(upkeep._child.pid, signal.SIGKILL)
    (kind, text), *others = events(upkeep, "000001")
    assert kind == "upkeep-failed"
    assert others == []  # made again, without any trouble
    assert ": killed by SIGKILL (by hand, or by the kernel when memory ran out)" in text
