"""dataset.json and its shards: what is damaged or missing is named before training starts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_config.errors import UserError
from fleetps.data.dataset import Dataset, load_dataset
from fleetps.data.rows import peek_rows
from fleetps.data.synthetic import SyntheticSpec, make_synthetic


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = SyntheticSpec(rows=250, test_rows=50, distinct_ids=520, shard_rows=100)
    return make_synthetic(tmp_path_factory.mktemp("made") / "data", spec).path


@pytest.fixture
def dataset(tmp_path: Path, made_once: Path) -> Dataset:
    """One that a test may damage."""
    return load_dataset(shutil.copytree(made_once, tmp_path / "data"))


def test_a_data_set_is_read_as_it_was_written(dataset: Dataset) -> None:
    again = load_dataset(dataset.path)
    assert again == dataset
    assert json.loads(again.to_json()) == json.loads((dataset.path / "dataset.json").read_text())
    assert [(s.file, s.rows) for s in again.split("train").shards] == [
        ("train-00000.txt.zst", 100),
        ("train-00001.txt.zst", 100),
        ("train-00002.txt.zst", 50),
    ]
    assert again.split("test").rows == 50
    assert again.shard_path(again.split("test").shards[0]).is_absolute()
    again.verify()
    assert {path.name for path in dataset.path.iterdir()} == {
        "dataset.json",
        *(shard.file for shard in again.shards()),
    }


def test_first_rows_can_be_looked_at(dataset: Dataset) -> None:
    rows = peek_rows(dataset, 3)
    assert [list(row) for row in rows] == [["label", "dense", "ids"]] * 3
    assert len(rows[0]["dense"]) == 13
    assert len(rows[0]["ids"]) == 26
    assert len(peek_rows(dataset, 1000)) == 100  # of the first shard


def test_an_unknown_split_is_named(dataset: Dataset) -> None:
    with pytest.raises(UserError, match="has no split 'valid'; it has: test, train"):
        dataset.split("valid")


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """An edit of dataset.json."""

    def apply(path: Path) -> None:
        document = json.loads((path / "dataset.json").read_text())
        change(document)
        (path / "dataset.json").write_text(json.dumps(document))

    return apply


def shard(path: Path) -> Path:
    return path / "train-00001.txt.zst"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "dataset.json").unlink(), "has no dataset.json; raw files have to be"),
        (lambda p: (p / "dataset.json").write_text('{\n"a": }'), r"dataset.json:2: is not valid"),
        (lambda p: (p / "dataset.json").write_bytes(b"\xff"), "is damaged: not UTF-8 text"),
        (lambda p: (p / "dataset.json").write_text("[]"), '"format" is not'),
        (edit(lambda d: d.pop("columns")), "is damaged: has no 'columns'"),
        (edit(lambda d: d.update(version=2)), "version 2 is not supported, only 1"),
        (edit(lambda d: d["columns"].pop(0)), "first column must be the label"),
        (edit(lambda d: d["columns"][1].update(width=12)), "width of column 'dense'"),
        (edit(lambda d: d["columns"][1].update(kind="text")), "unknown kind 'text'"),
        (edit(lambda d: d["columns"][1].update(name="ids")), "two columns have the same name"),
        (edit(lambda d: d["columns"][1].update(width=None)), "width of column 'dense'"),
        (edit(lambda d: d["splits"].pop("train")), "there are no training rows"),
        (edit(lambda d: d["splits"]["train"].update(rows=7)), "do not add up to 7"),
        (edit(lambda d: d["splits"]["train"]["shards"][0].update(file=".x")), "hidden files"),
        (edit(lambda d: d["splits"]["train"]["shards"][0].update(file="../x")), "'../x' is not"),
        (lambda p: shard(p).unlink(), "train-00001.txt.zst: is missing"),
        (lambda p: shard(p).write_bytes(b""), "train-00001.txt.zst: is empty"),
        (lambda p: shard(p).write_bytes(b"x"), "train-00001.txt.zst: has 1 bytes"),
    ],
)
def test_damage_is_named(dataset: Dataset, damage: Callable[[Path], object], message: str) -> None:
    damage(dataset.path)
    with pytest.raises(UserError, match=message) as raised:
        load_dataset(dataset.path)
    assert "\n" not in str(raised.value)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path}/nope: does not exist; a data set is a direct"):
        load_dataset(tmp_path / "nope")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file: is not a directory"):
        load_dataset(tmp_path / "file")


def test_verify_notices_a_changed_byte(dataset: Dataset) -> None:
    content = bytearray(shard(dataset.path).read_bytes())
    content[len(content) // 2] ^= 1
    shard(dataset.path).write_bytes(content)
    with pytest.raises(UserError, match=r"train-00001.txt.zst: its content has changed"):
        load_dataset(dataset.path).verify()


def test_verify_counts_rows(dataset: Dataset) -> None:
    def change(document: dict[str, Any]) -> None:
        first, second = document["splits"]["train"]["shards"][:2]
        first["rows"] += 1
        second["rows"] -= 1

    edit(change)(dataset.path)
    with pytest.raises(UserError, match=r"has 100 rows, but dataset\.json says 101"):
        load_dataset(dataset.path).verify()


def test_reading_a_data_set_imports_little() -> None:
    code = (
        "import sys, fleetps.data.dataset, fleetps.data.pipe, fleetps.data.rows\n"
        "print([m for m in ('numpy', 'pyarrow', 'paddle', 'zstandard') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
