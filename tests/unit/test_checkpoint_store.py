"""Saves: what is published, what is refused, what is found again and what is removed."""

from __future__ import annotations

import dataclasses
import gzip
import logging
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoint_rig import COLUMNS, data_of, job_of, make, write_partial

from fleet_config.errors import UserError
from fleetps.checkpoint.finish import finish
from fleetps.checkpoint.store import Checkpoints, open_checkpoint
from fleetps.checkpoint.verify import verify


def test_what_is_published(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    made = make(job, 3)
    assert made.path.parent == tmp_path / "runs/small/checkpoints"
    assert made.name.startswith("000003-20")
    verify(made.path, made.manifest, deep=True)
    again = open_checkpoint(made.path)
    assert again == made
    manifest = again.manifest
    assert (manifest.servers, manifest.workers, manifest.number) == (2, 2, 3)
    assert manifest.progress == {"epoch": 2, "rows": 21}
    assert manifest.dense == {"w": (2, 3), "b": (3,)}
    assert manifest.job.digest == job.digest()
    assert manifest.job.agreement == job.agreement()
    table = manifest.tables["wide"]
    assert (table.id, table.dim, table.shards, table.rows) == (1, 5, 2, 40)
    assert table.bytes == sum(file.stat().st_size for file in (again.tables / "001").iterdir())
    # Who left no state takes another's.
    assert [again.optimizer(rank).name for rank in (0, 1, 2, 3)] == [
        f"optimizer-{rank}.npz" for rank in (0, 2, 2, 2)
    ]


def part(partial: Path, shard: int = 2) -> Path:
    return partial / f"tables/000/part-{shard // 2:03}-{shard:05}.gz"


def rewrite(partial: Path, change: Callable[[bytes], bytes]) -> None:
    file = part(partial)
    file.write_bytes(gzip.compress(change(gzip.decompress(file.read_bytes()))))


def first_line(text: bytes, change: Callable[[bytes], bytes]) -> bytes:
    line, end, rest = text.partition(b"\n")
    return change(line) + end + rest


def _full_disk(partial: Path) -> None:
    part(partial).write_bytes(b"")


def _truncated(partial: Path) -> None:
    part(partial).write_bytes(part(partial).read_bytes()[:-20])


def _dense_with_nan(partial: Path) -> None:
    np.savez(partial / "dense.npz", w=np.array([1.0, np.nan]))


def other_shard(line: bytes) -> bytes:
    key, _, rest = line.partition(b" ")
    return b"%d %s" % (int(key) + 1, rest)


# what went wrong while it was written -> what is said
FAILED = {
    "missing": (
        lambda partial: part(partial).unlink(),
        "part-001-00002.gz: was not written (1 of 4 files of table embedding are missing); all",
    ),
    "full disk": (_full_disk, "part-001-00002.gz: is empty; is there room in"),
    "truncated": (_truncated, "part-001-00002.gz: is damaged: it ends too early"),
    "no gzip": (
        lambda partial: part(partial).write_bytes(b"text"),
        "part-001-00002.gz: is damaged: Not a gzipped file",
    ),
    "a row more": (
        lambda partial: rewrite(partial, lambda text: text + text[: text.index(b"\n") + 1]),
        "tables/000: holds 41 rows of table embedding, but 40 were expected",
    ),
    "torn row": (
        lambda partial: rewrite(
            partial, lambda text: first_line(text, lambda line: line[:-3] + b" 1")
        ),
        "part-001-00002.gz:1: a row has",
    ),
    "torn end": (
        lambda partial: rewrite(partial, lambda text: text[:-1]),
        "part-001-00002.gz: is damaged: its last line has no end",
    ),
    "nan": (
        lambda partial: rewrite(
            partial, lambda text: first_line(text, lambda line: line.rpartition(b" ")[0] + b" nan")
        ),
        "part-001-00002.gz:1: a row holds nan or inf",
    ),
    "row of another shard": (
        lambda partial: rewrite(partial, lambda text: first_line(text, other_shard)),
        "belongs to shard 3 of 4, not to 2",
    ),
    "a file too many": (
        lambda partial: (partial / "tables/000/part-002-00004.gz").write_bytes(b"x"),
        "part-002-00004.gz: is not of this save",
    ),
    "no optimizer": (
        lambda partial: (partial / "optimizer-2.npz").unlink(),
        "optimizer-2.npz: was not written",
    ),
    "no dense": (lambda partial: (partial / "dense.npz").unlink(), "dense.npz: was not written"),
    "dense of nan": (_dense_with_nan, "dense.npz: w holds nan or inf"),
    "cut optimizer": (
        lambda partial: (partial / "optimizer-0.npz").write_bytes(
            (partial / "optimizer-0.npz").read_bytes()[:100]
        ),
        "optimizer-0.npz: is damaged",
    ),
    "damaged dense": (
        lambda partial: (partial / "dense.npz").write_bytes(b"PK"),
        "dense.npz: is damaged",
    ),
}


@pytest.mark.parametrize("case", FAILED)
def test_a_save_that_failed_leaves_nothing(tmp_path: Path, case: str) -> None:
    harm, sentence = FAILED[case]
    job = job_of(tmp_path)
    partial, saved = write_partial(job, 1)
    harm(partial)
    with pytest.raises(UserError) as caught:
        finish(partial, job, data_of(job), saved)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(str(partial))
    assert list(job.checkpoint_dir.iterdir()) == []


def test_rows_that_the_servers_count_differently(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    partial, saved = write_partial(job, 1)
    saved = dataclasses.replace(saved, rows={**saved.rows, "wide": 41})
    with pytest.raises(UserError, match="001: holds 40 rows of table wide, but 41 were expected"):
        finish(partial, job, data_of(job), saved)


def test_no_room_for_the_manifest(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    partial, saved = write_partial(job, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"can't write checkpoints in .*: File too large; make"):
            finish(partial, job, data_of(job), saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(job.checkpoint_dir.iterdir()) == []


def test_a_directory_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"can't write .*: Not a directory; make room .* or set"):
        Checkpoints(tmp_path / "file" / "checkpoints").begin(1)


def test_damaged_ones_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = job_of(tmp_path)
    store = Checkpoints(job.checkpoint_dir)
    assert store.newest_valid(job, COLUMNS) is None
    first, second, third = (make(job, number) for number in (1, 2, 3))
    assert store.newest_valid(job, COLUMNS) == third
    (third.path / "manifest.json").unlink()
    damaged = second.tables / "000/part-000-00000.gz"
    content = bytearray(damaged.read_bytes())
    content[20] ^= 1
    damaged.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert store.newest_valid(job, COLUMNS) == first
    assert f"{third.path}: has no manifest.json" in caplog.text
    assert f"{damaged}: its content has changed (SHA-256 differs)" in caplog.text


def test_one_that_does_not_fit_is_no_reason_to_take_an_older_one(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    make(job, 1)
    newest = make(job, 2)
    other = job_of(tmp_path, model={"name": "dnn", "params": {"hidden": [8]}})
    with pytest.raises(UserError) as caught:
        Checkpoints(job.checkpoint_dir).newest_valid(other, COLUMNS)
    assert str(caught.value).startswith(f"{newest.path}: doesn't fit the job: model.params.hidden")


def test_half_made_ones_are_never_seen_and_go_with_the_next(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    store = Checkpoints(job.checkpoint_dir)
    assert store.next_number() == 1
    write_partial(job, 4)
    assert store.list() == []
    assert store.next_number() == 5
    make(job, 5)
    assert [path.name[:6] for path in store.path.iterdir()] == ["000005"]


def test_what_is_kept(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    store = Checkpoints(job.checkpoint_dir)
    for number in range(1, 8):
        make(job, number)
        store.prune(keep=2, keep_every=3)
    assert [one.manifest.number for one in store.list()] == [7, 6, 3]
    removed = store.prune(keep=1)
    assert [name[:6] for name in removed] == ["000006", "000003"]
    store.remove(store.list()[0].name)
    assert list(store.path.iterdir()) == []
    with pytest.raises(UserError, match="has no checkpoint 000007"):
        store.remove("000007")


def test_files_of_another_kind_are_ignored(tmp_path: Path) -> None:
    """Such as a note that somebody left there."""
    job = job_of(tmp_path)
    made = make(job, 1)
    (job.checkpoint_dir / "README").write_text("")
    assert Checkpoints(job.checkpoint_dir).list() == [made]


def test_one_of_a_newer_version(tmp_path: Path) -> None:
    """It is in nobody's way, but nobody goes on from an older one in silence either."""
    job = job_of(tmp_path)
    store = Checkpoints(job.checkpoint_dir)
    for number in range(1, 4):
        make(job, number)
    newest = make(job, 4)
    manifest = newest.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
    assert [one.manifest.number for one in store.list()] == [3, 2, 1]
    assert len(store.prune(keep=1)) == 2
    with pytest.raises(UserError, match="is of version 2, but this FleetPS reads version 1 only"):
        store.newest_valid(job, COLUMNS)
    store.remove(newest.name)
    found = store.newest_valid(job, COLUMNS)
    assert found is not None
    assert found.manifest.number == 3
