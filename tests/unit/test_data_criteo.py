"""Criteo files against the same conversion in plain Python, row by row."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from data_reference import (
    CATEGORIES,
    NUMBERS,
    as_tuples,
    criteo_lines,
    criteo_rows,
    with_rare_ids,
    write_lines,
)

from fleet_config.errors import UserError
from fleetps.data import inputs
from fleetps.data.convert import ConvertOptions, convert
from fleetps.data.criteo import criteo_source
from fleetps.data.dataset import Dataset
from fleetps.data.inputs import list_inputs

LINES = criteo_lines(200)
ROWS = {bucketize: criteo_rows(LINES, bucketize=bucketize) for bucketize in (False, True)}


def converted(out: Path, *raw: Path, bucketize: bool = False, **options: Any) -> Dataset:
    source = criteo_source(list_inputs(raw), bucketize=bucketize)
    return convert(source, out, ConvertOptions(**options), {"kind": "criteo"})


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "train.txt", LINES)


@pytest.fixture(params=[True, False], ids=["one block", "many blocks"])
def block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(inputs, "BLOCK_BYTES", 10_000)
        monkeypatch.setattr("fleetps.data.pipe.READ_BYTES", 3000)


@pytest.mark.parametrize("bucketize", [False, True])
def test_rows_are_what_they_should_be(
    tmp_path: Path, raw: Path, block_size: None, bucketize: bool
) -> None:
    dataset = converted(tmp_path / "out", raw, bucketize=bucketize)
    expected = ROWS[bucketize]
    assert as_tuples(dataset, "train") == expected[:160]
    assert as_tuples(dataset, "test") == expected[160:]
    label, dense, ids = dataset.columns
    assert (label.kind, dense.kind, ids.kind) == ("label", "dense", "sparse")
    assert dense.features == (*NUMBERS, *(f"{name}_missing" for name in NUMBERS))
    assert ids.features == (*CATEGORIES, *(NUMBERS if bucketize else []))
    distinct = len({i for row in expected for i in row[2]})
    assert dataset.distinct_ids == pytest.approx(distinct, rel=0.03)
    assert dataset.source["options"]["split"] == "time"
    assert dataset.source["bad_rows"] == 0
    dataset.verify()


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_compressed_input_gives_the_same(
    tmp_path: Path, raw: Path, pack: Callable[[bytes], bytes]
) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(pack(raw.read_bytes()))
    assert as_tuples(converted(tmp_path / "out", packed), "train") == ROWS[False][:160]


@pytest.mark.parametrize("compress", ["gzip", "none"])
def test_shards_may_be_gzip_or_plain(tmp_path: Path, raw: Path, compress: str) -> None:
    dataset = converted(tmp_path / "out", raw, compress=compress, shard_rows=60)
    suffix = {"gzip": ".txt.gz", "none": ".txt"}[compress]
    names = [shard.file for shard in dataset.splits["train"].shards]
    assert names == [f"train-0000{i}{suffix}" for i in range(3)]
    head = dataset.shard_path(dataset.splits["train"].shards[0]).read_bytes()[:2]
    assert head == {"gzip": b"\x1f\x8b", "none": b"1 "}[compress]
    assert as_tuples(dataset, "train") == ROWS[False][:160]
    dataset.verify()


@pytest.mark.parametrize("shard_rows", [7, 160, 161])
def test_shards_have_the_rows_they_should(
    tmp_path: Path, raw: Path, block_size: None, shard_rows: int
) -> None:
    dataset = converted(tmp_path / "out", raw, shard_rows=shard_rows)
    rows = [shard.rows for shard in dataset.splits["train"].shards]
    assert sum(rows) == 160
    assert set(rows[:-1]) <= {shard_rows}
    assert 0 < rows[-1] <= shard_rows
    assert as_tuples(dataset, "train") == ROWS[False][:160]


def test_several_files_are_one_input(tmp_path: Path, block_size: None) -> None:
    days = tmp_path / "days"
    days.mkdir()
    write_lines(days / "day_1", LINES[50:150])
    write_lines(days / "day_0", LINES[:50])
    (days / "day_2").write_text("\n".join(LINES[150:]))  # without a line end at the end
    (days / ".DS_Store").write_bytes(b"\0\0")
    (days / "_SUCCESS").touch()
    dataset = converted(tmp_path / "out", days)
    assert as_tuples(dataset, "train") == ROWS[False][:160]
    assert as_tuples(dataset, "test") == ROWS[False][160:]


def test_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    raw = tmp_path / "train.txt"
    raw.write_bytes("".join(f"{line}\r\n" for line in LINES).encode())
    assert as_tuples(converted(tmp_path / "out", raw), "train") == ROWS[False][:160]


def test_a_random_split_depends_on_the_seed_alone(tmp_path: Path, raw: Path) -> None:
    def split(name: str, seed: int) -> Dataset:
        return converted(tmp_path / name, raw, split="random", test_fraction=0.3, seed=seed)

    one, other = split("one", 1), split("other", 2)
    expected = ROWS[False]
    for dataset in (one, other):
        train, test = as_tuples(dataset, "train"), as_tuples(dataset, "test")
        assert sorted(train + test) == sorted(expected)
        assert 40 < len(test) < 80
    assert as_tuples(one, "test") != as_tuples(other, "test")

    first, second = (
        write_lines(tmp_path / name, lines)
        for name, lines in {"a": LINES[:33], "b": LINES[33:]}.items()
    )
    again = converted(tmp_path / "again", first, second, split="random", test_fraction=0.3, seed=1)
    assert as_tuples(again, "test") == as_tuples(one, "test")


def test_without_a_test_fraction_all_rows_are_for_training(tmp_path: Path, raw: Path) -> None:
    dataset = converted(tmp_path / "out", raw, test_fraction=0.0)
    assert list(dataset.splits) == ["train"]
    assert as_tuples(dataset, "train") == ROWS[False]


@pytest.mark.parametrize("bucketize", [False, True])
def test_rare_values_share_one_id(
    tmp_path: Path, raw: Path, block_size: None, bucketize: bool
) -> None:
    dataset = converted(tmp_path / "out", raw, min_count=3, bucketize=bucketize)
    rows = ROWS[bucketize]
    slots = [*CATEGORIES, *(NUMBERS if bucketize else [])]
    expected = with_rare_ids(rows, rows[:160], 3, slots)
    assert as_tuples(dataset, "train") == expected[:160]
    assert as_tuples(dataset, "test") == expected[160:]
    distinct = len({i for row in expected for i in row[2]})
    assert dataset.distinct_ids == pytest.approx(distinct, rel=0.03)


def test_the_file_without_labels_is_recognised(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "test.txt", [line.split("\t", 1)[1] for line in LINES])
    with pytest.raises(UserError, match=r"test\.txt: its first line has 39 columns, so the label"):
        converted(tmp_path / "out", raw)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_fraction": 1.0}, "--test-fraction must be at least 0 and less than 1"),
        ({"max_bad_fraction": -0.1}, "--max-bad-fraction must be"),
        ({"min_count": 256}, "--min-count must lie between 0"),
        ({"shard_rows": 0}, "--shard-rows must be at least 1"),
        ({"seed": -1}, "--seed must not be negative"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ConvertOptions(**options)
