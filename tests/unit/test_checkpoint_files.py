"""The files of a checkpoint: damage to any of them is named; rows keep their text in other shards;
what is read from them is what was written."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoint_rig import STATE, Text, job_of, lines_of, make, read_table, write_table
from pyarrow import parquet

from fleet_config.errors import UserError
from fleetps.checkpoint.diff import compare_dense, compare_table
from fleetps.checkpoint.export import export
from fleetps.checkpoint.format import read_manifest
from fleetps.checkpoint.reshard import loadable_tables, reshard
from fleetps.checkpoint.rows import Layout, read_lines
from fleetps.checkpoint.store import Checkpoint, open_checkpoint
from fleetps.checkpoint.values import parse_rows
from fleetps.checkpoint.verify import verify

SIX = {"embedding": {"dim": 3, "shards": 6}, "wide": {"dim": 5, "shards": 6}}
PART = "tables/001/part-001-00001.gz"


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "changed": (lambda path: flip(path / PART), f"{PART}: its content has changed"),
    "longer": (lambda path: (path / PART).open("ab").write(b"x"), f"{PART}: has "),
    "missing": (lambda path: (path / PART).unlink(), f"{PART}: is missing, but manifest.json"),
    "too many": (
        lambda path: (path / "tables/001/part-002-00002.gz").write_bytes(b""),
        "part-002-00002.gz: is not part of the checkpoint",
    ),
    "optimizer": (lambda path: flip(path / "optimizer-0.npz"), "optimizer-0.npz: its content has"),
    "dense": (lambda path: (path / "dense.npz").unlink(), "dense.npz: is missing"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named(tmp_path: Path, case: str) -> None:
    harm, sentence = DAMAGE[case]
    made = make(job_of(tmp_path))
    harm(made.path)
    with pytest.raises(UserError) as caught:
        verify(made.path, made.manifest)
    assert str(caught.value).startswith(str(made.path))
    assert sentence in str(caught.value)


def test_rows_are_counted_too(tmp_path: Path) -> None:
    made = make(job_of(tmp_path))
    file = made.path / "manifest.json"
    file.write_text(file.read_text().replace('"rows": 40', '"rows": 39'))
    verify(made.path, read_manifest(made.path))
    with pytest.raises(UserError, match="holds 40 rows of table embedding, but 39 were expected"):
        verify(made.path, read_manifest(made.path), deep=True)


MANIFESTS = {
    "": "is damaged: not JSON",
    "[]": 'is damaged: "format" is not "fleetps-checkpoint"',
    '{"format": "fleetps-checkpoint", "version": 2}': (
        "is of version 2, but this FleetPS reads version 1 only; use the FleetPS that wrote it"
    ),
    '{"format": "fleetps-checkpoint", "version": 1}': "is damaged: number: field required",
}


@pytest.mark.parametrize("text", MANIFESTS)
def test_manifest_that_is_none(tmp_path: Path, text: str) -> None:
    made = make(job_of(tmp_path))
    (made.path / "manifest.json").write_text(text)
    with pytest.raises(UserError) as caught:
        open_checkpoint(made.path)
    assert f"{made.path / 'manifest.json'}: {MANIFESTS[text]}" in str(caught.value)


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no manifest"):
        open_checkpoint(tmp_path)
    with pytest.raises(UserError, match="there is no such directory"):
        open_checkpoint(tmp_path / "none")


def test_reshard_keeps_every_line(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    made = make(job)
    out = tmp_path / "out"
    reshard(made, out, {"embedding": 12, "wide": 3}, servers=3)
    other = open_checkpoint(out)
    verify(out, other.manifest, deep=True)
    assert read_table(out / "tables/000", 12) == lines_of(job, "embedding")
    assert read_table(out / "tables/001", 3) == lines_of(job, "wide")
    names = sorted(file.name for file in (out / "tables/000").iterdir())
    assert names[:5] == [f"part-00{server}-0000{n}.gz" for n, server in enumerate("00001")]
    assert names[-1] == "part-002-00011.gz"
    for name in ("dense.npz", "optimizer-2.npz", "tables/002/part-001.gz"):
        assert (out / name).read_bytes() == (made.path / name).read_bytes()
    assert other.manifest.progress == made.manifest.progress
    assert (other.manifest.servers, other.manifest.workers) == (3, 2)
    assert not list(tmp_path.glob(".partial*"))


def test_reshard_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files larger than what is kept in memory are written a piece at a time."""
    monkeypatch.setattr("fleetps.checkpoint.reshard._BUFFERED", 1000)
    monkeypatch.setattr("fleetps.checkpoint.rows._BLOCK", 300)
    job = job_of(tmp_path)
    reshard(make(job), tmp_path / "out", {"embedding": 3, "wide": 1}, servers=1)
    assert read_table(tmp_path / "out/tables/000", 3) == lines_of(job, "embedding")
    verify(tmp_path / "out", read_manifest(tmp_path / "out"), deep=True)


def test_reshard_refuses(tmp_path: Path) -> None:
    made = make(job_of(tmp_path))
    with pytest.raises(UserError, match="3 servers can't share 4 shards of table embedding alike"):
        reshard(made, tmp_path / "out", {"embedding": 4, "wide": 3}, servers=3)
    with pytest.raises(UserError, match="exists already"):
        reshard(made, tmp_path, {"embedding": 4, "wide": 4}, servers=2)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't be written: Not a directory"):
        reshard(made, tmp_path / "file/out", {"embedding": 4, "wide": 4}, servers=2)


def test_tables_for_a_job_with_other_shards(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    made = make(job)
    with loadable_tables(made, job) as found:
        assert found == made.tables
    tables = {"embedding": {"dim": 3, "shards": 6}, "wide": {"dim": 5, "rule": {"name": "adam"}}}
    more = job_of(tmp_path, cluster={"servers": 3}, tables=tables)
    (job.checkpoint_dir / ".partial-resharded/tables/000").mkdir(parents=True)  # of one that died
    with loadable_tables(made, more) as found:
        assert read_table(found / "000", 6) == lines_of(job, "embedding")
        assert read_table(found / "001", more.table_shards("wide")) == lines_of(job, "wide")
        assert len(list((found / "002").iterdir())) == 2
    assert list(job.checkpoint_dir.iterdir()) == [made.path]


def test_damaged_tables_are_not_loaded(tmp_path: Path) -> None:
    made = make(job_of(tmp_path))
    (made.path / PART).write_bytes(gzip.compress(b"1 0 0 0 1 0 1 1 1 1 1\n"))
    tables = {"embedding": {"dim": 3, "shards": 8}, "wide": {"dim": 5, "shards": 8}}
    job = job_of(tmp_path, tables=tables)
    with (
        pytest.raises(UserError, match="of table wide, but 40 were expected"),
        loadable_tables(made, job),
    ):
        pass
    assert list(job.checkpoint_dir.iterdir()) == [made.path]


def test_no_room_for_other_shards(tmp_path: Path) -> None:
    made = make(job_of(tmp_path))
    (tmp_path / "file").write_text("")
    elsewhere = {"path": str(tmp_path / "file/checkpoints")}
    job = job_of(tmp_path, cluster={"servers": 1}, tables=SIX, checkpoint=elsewhere)
    with (
        pytest.raises(UserError, match="anew: Not a directory; make room there or set"),
        loadable_tables(made, job),
    ):
        pass


@pytest.mark.parametrize("rule", STATE)
@pytest.mark.parametrize("dim", [2, 5])
def test_values_of_rows(tmp_path: Path, rule: str, dim: int) -> None:
    job = job_of(tmp_path, tables={"t": {"dim": dim, "shards": 1, "rule": {"name": rule}}})
    lines = lines_of(job, "t")
    write_table(tmp_path / "t", lines, servers=1, shards=1)
    rows = parse_rows(read_lines(tmp_path / "t/part-000-00000.gz"), Layout(dim, rule))
    found = dict(zip(rows.ids.tolist(), rows.values().tolist(), strict=True))
    assert found == {key: values_of(line, dim, rule) for key, line in lines.items()}


def values_of(line: str, dim: int, rule: str) -> list[float]:
    numbers = [float(text) for text in line.split()[6:]]
    first_state = STATE[rule](dim - 1)[0]
    factors = numbers[1 + first_state :][: dim - 1]
    return [numbers[0], *(factors or [0.0] * (dim - 1))]


def test_export(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    made = make(job)
    files = export(made, tmp_path / "out")
    assert [file.name for file in files] == ["dense.npz", "embedding.parquet", "wide.parquet"]
    table = parquet.read_table(tmp_path / "out/wide.parquet")
    assert [str(field.type) for field in table.schema] == [
        "int64",
        "fixed_size_list<element: float>[5]",
    ]
    expected = {
        key: np.float32(values_of(line, 5, "adam")).tolist()
        for key, line in lines_of(job, "wide").items()
    }
    rows = zip(*(table.column(name).to_pylist() for name in ("id", "values")), strict=True)
    assert dict(rows) == expected
    with pytest.raises(UserError, match="exists already"):
        export(made, tmp_path / "out")


def test_ids_beyond_63_bits_are_exported_as_in_the_data(tmp_path: Path) -> None:
    """-5 in the data is 2^64 - 5 for the engine."""
    job = job_of(tmp_path, tables={"embedding": {"dim": 2, "shards": 2, "rule": {"name": "naive"}}})
    made = make(job)
    files = [made.path / f"tables/000/part-00{shard}-0000{shard}.gz" for shard in (0, 1)]
    files[0].write_bytes(gzip.compress(b""))
    files[1].write_bytes(gzip.compress(b"%d 0 0 0 1 0 0.25 1.5\n" % (2**64 - 5)))
    export(made, tmp_path / "out")
    table = parquet.read_table(tmp_path / "out/embedding.parquet")
    assert table.to_pylist() == [{"id": -5, "values": [0.25, 1.5]}]


def _rewritten(made: Checkpoint, lines: Text) -> None:
    for file in (made.tables / "000").iterdir():
        file.unlink()
    (made.tables / "000").rmdir()
    write_table(made.tables / "000", lines, servers=2, shards=4)


@pytest.mark.parametrize("shards", [4, 6, 3])
def test_difference(tmp_path: Path, shards: int) -> None:
    """Two rows with other values, one with another age, two here only, one there only."""
    job = job_of(tmp_path)
    lines = lines_of(job, "embedding")
    a, b = make(job, 1), make(job, 2)
    keys = list(lines)
    changed = dict(lines)
    for key, step in ((keys[1], 0.5), (keys[2], -2.0)):
        fields = lines[key].split()
        fields[8] = repr(float(fields[8]) + step)  # the first factor
        changed[key] = " ".join(fields) + "\n"
    changed[keys[3]] = lines[keys[3]].replace(f"{keys[3]} 0 0", f"{keys[3]} 0 1")
    changed[77] = lines[keys[5]].replace(str(keys[5]), "77")
    del changed[keys[6]], changed[keys[7]]
    _rewritten(b, changed)
    manifest = b.manifest
    tables = manifest.tables
    tables = {**tables, "embedding": tables["embedding"].model_copy(update={"rows": 39})}
    b = Checkpoint(b.path, manifest.model_copy(update={"tables": tables}))
    if shards != 4:
        servers = 3 if shards == 6 else 1
        reshard(b, tmp_path / "b", dict.fromkeys(manifest.tables, shards), servers)
        b = open_checkpoint(tmp_path / "b")
    found = compare_table(a, b, "embedding")
    assert (found.only_a, found.only_b, found.changed, found.other, found.same) == (2, 1, 2, 1, 35)
    assert found.largest == pytest.approx(2.0, abs=1e-5)
    assert found.of == keys[2]
    assert compare_table(a, b, "wide").same == 40
    assert dict(compare_dense(a, b)) == {}


def test_difference_of_dense(tmp_path: Path) -> None:
    a, b = make(job_of(tmp_path), 1, seed=1), make(job_of(tmp_path), 2, seed=2)
    np.savez(b.dense, b=np.full(3, 0.75, np.float32), w=np.ones((3, 2)), new=np.ones(1))
    assert dict(compare_dense(a, b)) == {
        "b": "largest difference 0.25",
        "w": "of shape [2, 3] in A, [3, 2] in B",
        "new": "only in B",
    }


def test_manifest_names_everything_with_its_checksum(tmp_path: Path) -> None:
    made = make(job_of(tmp_path))
    document = json.loads((made.path / "manifest.json").read_text())
    assert sorted(document["files"]) == sorted(
        path.relative_to(made.path).as_posix()
        for path in made.path.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    )
