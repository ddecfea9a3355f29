"""Deltas: what comes out of a chain, what is kept, what happens to one with a broken link."""

from __future__ import annotations

import gzip
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from checkpoint_rig import COLUMNS, Text, job_of, lines_of, make, read_table

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleetps.checkpoint.chain import chain_of, verify_chain
from fleetps.checkpoint.diff import compare_table
from fleetps.checkpoint.export import export
from fleetps.checkpoint.format import DamagedCheckpoint
from fleetps.checkpoint.reshard import loadable_tables, reshard
from fleetps.checkpoint.store import Checkpoint, Checkpoints, open_checkpoint
from fleetps.checkpoint.tidy import tidy

Tables = dict[str, Text]


def history(job: Job, length: int) -> list[Tables]:
    """Tables as they are at each of so many checkpoints: rows change, go, come, and come back."""
    random = np.random.default_rng(3)
    moments: list[Tables] = [{name: lines_of(job, name) for name in job.tables}]
    for number in range(1, length):
        tables = {}
        for name, before in moments[-1].items():
            rows = dict(before)
            fresh = lines_of(job, name, seed=100 + number)
            back = [key for key in moments[0][name] if key not in rows]
            for key in random.choice(sorted(rows), 4, replace=False).tolist():
                del rows[key]
            for key in random.choice(sorted(rows), 6, replace=False).tolist():
                rows[key] = rows[key].replace(" 0 0 ", f" 0 {number} ", 1)
            rows |= {key: fresh[key] for key in list(fresh)[:3]}
            rows |= {key: moments[0][name][key] for key in back[:1]}
            tables[name] = rows
        moments.append(tables)
    return moments


def checkpoints(job: Job, moments: Sequence[Tables], full_every: int = 10) -> Checkpoints:
    """As a job makes them, one after the other, with what is done after each."""
    store = Checkpoints(job.checkpoint_dir)
    for number, tables in enumerate(moments, start=1):
        make(job, number, seed=number, tables=tables)
        tidy(store, full_every)
    return store


def text_of(checkpoint: Checkpoint, name: str) -> Text:
    """By id; fails if an id comes twice."""
    lines = b"".join(chain_of(checkpoint).table(name)).decode().splitlines(keepends=True)
    found = {int(line.split()[0]): line for line in lines}
    assert len(found) == len(lines)
    return found


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return job_of(tmp_path)


def test_a_chain_is_what_was_saved(job: Job, tmp_path: Path) -> None:
    moments = history(job, 6)
    store = checkpoints(job, moments)
    found = store.list()[::-1]
    assert [one.manifest.kind for one in found] == ["full", *["delta"] * 4, "full"]
    assert [one.manifest.base for one in found] == [None, *(one.name for one in found[:4]), None]
    for one, tables in zip(found, moments, strict=True):
        verify_chain(one)
        for name, rows in tables.items():
            assert text_of(one, name) == rows
            record = one.manifest.tables[name]
            assert record.rows == len(rows)
            own = sum(file.stat().st_size for file in (one.path / record.directory).iterdir())
            assert record.bytes == own
        with loadable_tables(one, job) as directory:
            for number, name in enumerate(tables):
                shards = job.table_shards(name)
                assert read_table(directory / f"{number:03}", shards) == tables[name]


def test_a_delta_holds_what_changed(job: Job) -> None:
    moments = history(job, 3)
    second = checkpoints(job, moments).list()[1]
    for name in job.tables:
        before, after = moments[0][name], moments[1][name]
        record = second.manifest.tables[name]
        stored = read_table_of(second, name)
        assert stored == {key: line for key, line in after.items() if before.get(key) != line}
        assert record.changes is not None
        assert record.changes.changed == len(stored)
        gone = before.keys() - after.keys()
        assert record.changes.removed == len(gone) == 4
        files = (second.path / record.directory).glob("removed-*.gz")
        assert {
            int(line) for f in files for line in gzip.decompress(f.read_bytes()).split()
        } == gone


def read_table_of(checkpoint: Checkpoint, name: str) -> Text:
    files = (checkpoint.path / checkpoint.manifest.tables[name].directory).glob("part-*")
    lines = [line for f in files for line in gzip.decompress(f.read_bytes()).decode().splitlines()]
    return {int(line.split()[0]): f"{line}\n" for line in lines}


def test_every_so_many_are_full(job: Job) -> None:
    store = checkpoints(job, history(job, 8), full_every=3)
    kinds = [one.manifest.kind for one in store.list()[::-1]]
    assert kinds == ["full", "delta", "delta", "full", "delta", "delta", "full", "full"]


def test_all_full(job: Job) -> None:
    store = checkpoints(job, history(job, 3), full_every=1)
    assert {one.manifest.kind for one in store.list()} == {"full"}
    assert not list(store.path.glob(".*"))


def test_a_delta_that_saves_nothing_is_not_made(job: Job) -> None:
    tables = {name: lines_of(job, name) for name in job.tables}
    decayed = {
        n: {k: t.replace(" 0 0 ", " 0 1 ", 1) for k, t in r.items()} for n, r in tables.items()
    }
    store = checkpoints(job, [tables, decayed, tables])
    assert {one.manifest.kind for one in store.list()} == {"full"}


def test_other_shards_begin_a_new_chain(job: Job, tmp_path: Path) -> None:
    moments = history(job, 4)
    store = checkpoints(job, moments[:2])
    one_server = job_of(tmp_path, cluster={"servers": 1})
    for number, tables in enumerate(moments[2:], start=3):
        make(one_server, number, tables=tables)
        tidy(store, 10)
    make(one_server, 5, tables=moments[0])
    tidy(store, 10)
    kinds = [one.manifest.kind for one in store.list()[::-1]]
    assert kinds == ["full", "delta", "full", "delta", "full"]
    assert text_of(store.list()[1], "wide") == moments[3]["wide"]


def test_reshard_export_and_diff(job: Job, tmp_path: Path) -> None:
    moments = history(job, 4)
    delta = checkpoints(job, moments).list()[1]
    whole = make(job_of(tmp_path / "whole"), 3, tables=moments[2])
    out = tmp_path / "out"
    reshard(delta, out, {"embedding": 3, "wide": 6}, servers=3)
    written = open_checkpoint(out)
    assert (written.manifest.kind, written.manifest.base) == ("full", None)
    verify_chain(written)
    assert read_table(out / "tables/000", 3) == moments[2]["embedding"]
    assert read_table(out / "tables/001", 6) == moments[2]["wide"]
    for name, rows in moments[2].items():
        assert compare_table(delta, whole, name).same == len(rows)
        found = compare_table(delta, delta.links()[-1], name)
        common = moments[0][name].keys() & rows.keys()
        same = sum(moments[0][name][key] == rows[key] for key in common)
        assert (found.same, found.only_a) == (same, len(rows) - len(common))
    export(delta, tmp_path / "a")
    export(whole, tmp_path / "b")
    for name in moments[2]:
        read = [rows_in(tmp_path / side / f"{name}.parquet") for side in "ab"]
        assert read[0] == read[1]


def rows_in(file: Path) -> dict[int, list[float]]:
    from pyarrow import parquet  # noqa: PLC0415

    table = parquet.read_table(file)
    return dict(zip(table["id"].to_pylist(), table["values"].to_pylist(), strict=True))


def _missing(link: Checkpoint) -> None:
    shutil.rmtree(link.path)


def _truncated(link: Checkpoint) -> None:
    file = link.tables / "001/part-000-00000.gz"
    file.write_bytes(file.read_bytes()[:-9])


def _no_manifest(link: Checkpoint) -> None:
    (link.path / "manifest.json").unlink()


@pytest.mark.parametrize("damage", [_missing, _truncated, _no_manifest])
def test_a_broken_link(
    damage: Callable[[Checkpoint], None], job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest chain that is complete is used: here the full one before the broken link."""
    store = checkpoints(job, history(job, 5))
    newest, fourth, third, second, first = store.list()
    _truncated(newest)
    damage(second)
    caplog.set_level(logging.WARNING)
    found = store.newest_valid(job, COLUMNS)
    assert found is not None
    assert found.name == first.name
    told = " ".join(record.getMessage() for record in caplog.records)
    for one in (newest, fourth, third, second):
        assert one.name in told
    with pytest.raises(DamagedCheckpoint, match=second.name):
        verify_chain(third)


def test_a_link_that_was_exchanged(job: Job, tmp_path: Path) -> None:
    """One that is whole, but not what the delta was made from, is noticed by what comes out."""
    moments = history(job, 3)
    store = checkpoints(job, moments)
    _, second, first = store.list()
    other = make(job_of(tmp_path / "other"), 1, tables=moments[2])
    shutil.rmtree(first.path)
    shutil.copytree(other.path, first.path)
    with pytest.raises(DamagedCheckpoint, match=f"{second.name}: with what it builds on"):
        verify_chain(second)
    with (
        pytest.raises(DamagedCheckpoint, match="rows of table embedding that are not the"),
        loadable_tables(second, job),
    ):
        pass


def test_links_are_kept(job: Job) -> None:
    """All that the kept ones build on, or the newest will build on."""
    moments = history(job, 7)
    store = Checkpoints(job.checkpoint_dir)
    left = []
    for number, tables in enumerate(moments, start=1):
        make(job, number, tables=tables)
        store.prune(1, full_every=3)
        tidy(store, 3)
        left.append([one.manifest.number for one in store.list()])
    assert left == [[1], [2, 1], [3, 2, 1], [4], [5, 4], [6, 5, 4], [7]]
    verify_chain(store.list()[0])


def test_links_of_those_kept_for_ever(job: Job) -> None:
    store = checkpoints(job, history(job, 7), full_every=3)
    store.prune(1, keep_every=5, full_every=3)
    assert [one.manifest.number for one in store.list()] == [7, 5, 4]
    for one in store.list():
        verify_chain(one)


def test_a_needed_link_is_not_removed_by_hand(job: Job) -> None:
    store = checkpoints(job, history(job, 3))
    newest, second, first = store.list()
    with pytest.raises(UserError, match=f"can't be removed, as {second.name} builds on it; remove"):
        store.remove(first.name)
    store.remove(second.name)  # the newest would have built on it, and now stays full
    assert store.thin(newest.name) is None
    store.remove(first.name)
    assert [one.name for one in store.list()] == [newest.name]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", range(3))
def test_killed_at_any_moment(job: Job, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any of its renames; the next round mends what it left."""
    moments = history(job, 4)
    store = checkpoints(job, moments[:3])
    make(job, 4, tables=moments[3])
    rename = Path.rename
    left = [moment]

    def until(source: Path, target: Path) -> Path:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", until)
        with pytest.raises(Killed):
            tidy(store, 10)
    tidy(store, 10)
    found = store.list()[::-1]
    assert [one.manifest.kind for one in found] == ["full", "delta", "delta", "full"]
    for one, tables in zip(found, moments, strict=True):
        for name, rows in tables.items():
            assert text_of(one, name) == rows


def test_a_damaged_base_leaves_the_checkpoint_full(job: Job) -> None:
    moments = history(job, 3)
    store = checkpoints(job, moments[:2])
    _truncated(store.list()[1])
    make(job, 3, tables=moments[2])
    tidy(store, 10)
    assert [one.manifest.kind for one in store.list()] == ["full"] * 3
    assert text_of(store.list()[1], "wide") == moments[1]["wide"]
