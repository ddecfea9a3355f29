"""The second place for checkpoints: what gets there, what stays there, what comes back."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from checkpoint_rig import COLUMNS, job_of, make
from test_checkpoint_chains import checkpoints, history, text_of

from fleet_config.errors import TryAgain, UserError
from fleet_config.job import Job
from fleetps.checkpoint.chain import verify_chain
from fleetps.checkpoint.mirror import Mirror, copy_missing, fetch_newest, prune
from fleetps.checkpoint.store import Checkpoints
from fleetps.checkpoint.tidy import tidy


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return job_of(tmp_path)


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/mirror/"
        return
    place = f"/{uuid.uuid4().hex}"
    yield f"memory:/{place}"
    memory = fsspec.filesystem("memory")
    if memory.exists(place):
        memory.rm(place, recursive=True)


def numbers(mirror: Mirror) -> list[int]:
    return [copy.manifest.number for copy in mirror.list()]


def names_in(store: Checkpoints) -> list[str]:
    return [one.name for one in store.list()]


def test_copies_come_back(job: Job, url: str) -> None:
    """After each checkpoint, as a job does; then its own directory is lost."""
    moments = history(job, 5)
    store = Checkpoints(job.checkpoint_dir)
    mirror = Mirror(url, "small")
    assert mirror.list() == []
    for number, tables in enumerate(moments, start=1):
        made = make(job, number, tables=tables)
        tidy(store, 3)
        assert copy_missing(store, mirror) == [made.name]
    assert copy_missing(store, mirror) == []
    # Those that are deltas here only when they aren't the newest any more are ones there at once.
    kinds = [copy.manifest.kind for copy in mirror.list()[::-1]]
    assert kinds == ["full", "delta", "delta", "full", "delta"]

    shutil.rmtree(store.path)
    fetched = fetch_newest(mirror, store)
    assert fetched is not None
    assert names_in(store) == [copy.name for copy in mirror.list()[:2]]
    assert not list(store.path.glob(".*"))
    verify_chain(fetched)
    assert store.newest_valid(job, COLUMNS) == fetched
    for name, rows in moments[-1].items():
        assert text_of(fetched, name) == rows
    # The job goes on from there.
    made = make(job, store.next_number(), tables=moments[2])
    tidy(store, 3)
    assert copy_missing(store, mirror) == [made.name]
    assert numbers(mirror) == [6, 5, 4, 3, 2, 1]


def test_nothing_to_fetch(job: Job, url: str) -> None:
    store = Checkpoints(job.checkpoint_dir)
    assert fetch_newest(Mirror(url, "small"), store) is None
    assert not store.path.exists()


def test_jobs_do_not_meet(job: Job, url: str) -> None:
    store = checkpoints(job, history(job, 1))
    copy_missing(store, Mirror(url, "other"))
    assert Mirror(url, "small").list() == []
    assert numbers(Mirror(url, "other")) == [1]


def test_what_failed_is_copied_with_the_next(
    job: Job, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = history(job, 3)
    store = checkpoints(job, moments[:2])
    mirror = Mirror(url, "small")
    left = [9]
    put_file = type(mirror._files).put_file

    def until(self: object, source: str, target: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise ConnectionError("the network is away")
        put_file(self, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(type(mirror._files), "put_file", until)
        with pytest.raises(TryAgain, match=r"000001-.* can't be written: the network is away"):
            copy_missing(store, mirror)
    assert mirror.list() == []
    make(job, 3, tables=moments[2])
    tidy(store, 10)
    names = names_in(store)
    # The newest first, but after what it builds on.
    assert copy_missing(store, mirror) == names[::-1]
    assert [copy.name for copy in mirror.list()] == names


def test_a_copy_that_was_cut_short_is_noticed(
    job: Job, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = checkpoints(job, history(job, 1))
    mirror = Mirror(url, "small")

    def cut(self: object, source: str, target: str) -> None:
        self.pipe_file(target, Path(source).read_bytes()[:-1])

    with monkeypatch.context() as patched:
        patched.setattr(type(mirror._files), "put_file", cut)
        with pytest.raises(TryAgain, match=r"has \d+ bytes, but \d+ were written"):
            copy_missing(store, mirror)
    assert mirror.list() == []


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_copy_is_not_used(
    damage: str, job: Job, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = checkpoints(job, history(job, 3))
    names = names_in(store)
    mirror = Mirror(url, "small")
    copy_missing(store, mirror)
    file = f"{mirror._root}/{names[1]}/tables/001/part-000-00000.gz"
    if damage == "missing":
        mirror._files.rm_file(file)
    else:
        mirror._files.pipe_file(file, b"?")
    shutil.rmtree(store.path)
    caplog.set_level(logging.WARNING)
    fetched = fetch_newest(mirror, store)
    assert fetched is not None
    assert fetched.name == names[2]
    told = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[0] for message in told] == names[:2]
    assert all("part-000-00000.gz" in message for message in told)


def test_a_copy_without_its_base(job: Job, url: str) -> None:
    store = checkpoints(job, history(job, 3))
    names = names_in(store)
    mirror = Mirror(url, "small")
    copy_missing(store, mirror)
    mirror.remove(names[1])
    shutil.rmtree(store.path)
    fetched = fetch_newest(mirror, store)
    assert fetched is not None
    assert fetched.name == names[2]


def test_retention(job: Job, url: str) -> None:
    """As in the job's own directory, where they are deltas one checkpoint later."""
    moments = history(job, 7)
    store = Checkpoints(job.checkpoint_dir)
    mirror = Mirror(url, "small")
    left = []
    for number, tables in enumerate(moments, start=1):
        make(job, number, tables=tables)
        store.prune(1, full_every=3)
        tidy(store, 3)
        copy_missing(store, mirror)
        prune(mirror, 1, None)
        left.append(numbers(mirror))
    assert left == [[1], [2, 1], [3, 2, 1], [4], [5, 4], [6, 5, 4], [7]]


def test_a_url_that_nothing_can_read() -> None:
    with pytest.raises(UserError, match="mirror: nowhere://there: can't be used: Protocol not kn"):
        Mirror("nowhere://there", "small")


def test_a_place_that_can_not_be_written(job: Job, tmp_path: Path) -> None:
    store = checkpoints(job, history(job, 1))
    (tmp_path / "file").write_text("")
    with pytest.raises(TryAgain, match=r"small: can't be listed: .*Not a directory"):
        copy_missing(store, Mirror(f"file://{tmp_path}/file/inside", "small"))
