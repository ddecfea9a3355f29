"""A data set on disk: a directory of shards described by its dataset.json.

Only the standard library is imported: the coordinator and the agent read data sets too, and
start in well under a second. The file format is described in docs/data.md.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fleet_config.errors import UserError
from fleetps.data.pipe import DamagedFile, read_blocks

FORMAT = "fleetps-dataset"
VERSION = 1
DATASET_FILE = "dataset.json"

Kind = Literal["label", "dense", "sparse"]


@dataclass(frozen=True)
class Column:
    """One MultiSlot column: `width` values per row, or any number (at least 1) if it is None."""

    name: str
    kind: Kind
    width: int | None
    features: tuple[str, ...]


@dataclass(frozen=True)
class Shard:
    file: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Split:
    rows: int
    shards: tuple[Shard, ...]

    def __str__(self) -> str:
        many = len(self.shards)
        return f"{self.rows:,} rows in {many} shard{'s' * (many != 1)}"


@dataclass(frozen=True)
class Dataset:
    path: Path
    columns: tuple[Column, ...]
    splits: Mapping[str, Split]
    distinct_ids: int
    source: Mapping[str, Any]

    def split(self, name: str) -> Split:
        """Return a split by name."""
        if name not in self.splits:
            known = ", ".join(sorted(self.splits))
            raise UserError(f"{self.path}: has no split '{name}'; it has: {known}")
        return self.splits[name]

    def shard_path(self, shard: Shard) -> Path:
        """Return the absolute path of a shard."""
        return self.path / shard.file

    def shards(self) -> Iterable[Shard]:
        """Iterate over the shards of all splits."""
        return (shard for split in self.splits.values() for shard in split.shards)

    def verify(self) -> None:
        """Read every shard completely: its checksum and its rows must be as written down."""
        for shard in self.shards():
            _verify(self.shard_path(shard), shard)

    def to_json(self) -> str:
        """Return the text of dataset.json."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "columns": [asdict(column) for column in self.columns],
            "splits": {name: asdict(split) for name, split in self.splits.items()},
            "distinct_ids": self.distinct_ids,
            "source": dict(self.source),
        }
        return json.dumps(document, indent=1) + "\n"


def load_dataset(path: str | Path) -> Dataset:
    """Read and check a data set; its shards must be there with the size written down."""
    path = Path(path).absolute()
    if not path.is_dir():
        found = "is not a directory" if path.exists() else "does not exist"
        raise UserError(
            f"{path}: {found}; a data set is a directory made by `fleetps data convert` "
            f"or `fleetps data synthetic`"
        )
    file = path / DATASET_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(
            f"{path}: has no {DATASET_FILE}; raw files have to be converted first, "
            f"see `fleetps data convert --help`"
        ) from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UserError(f"{file}: is damaged: not UTF-8 text; convert the data again") from None
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{file}:{error.lineno}: is not valid JSON: {error.msg}") from error
    try:
        dataset = _parse(path, document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"has no {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{file}: is damaged: {what}; convert the data again") from error
    _check_shards(dataset)
    return dataset


def _parse(path: Path, document: dict[str, Any]) -> Dataset:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f'"format" is not "{FORMAT}"')
    if document["version"] != VERSION:
        raise ValueError(f"version {document['version']} is not supported, only {VERSION}")
    columns = tuple(
        Column(str(c["name"]), c["kind"], c["width"], tuple(c["features"]))
        for c in document["columns"]
    )
    _check_columns(columns)
    splits = {
        str(name): Split(int(split["rows"]), tuple(Shard(**s) for s in split["shards"]))
        for name, split in document["splits"].items()
    }
    for name, split in splits.items():
        if split.rows != sum(shard.rows for shard in split.shards):
            raise ValueError(f"the rows of the shards of '{name}' do not add up to {split.rows}")
    if not splits.get("train") or not splits["train"].rows:
        raise ValueError("there are no training rows")
    return Dataset(path, columns, splits, int(document["distinct_ids"]), document["source"])


def _check_columns(columns: tuple[Column, ...]) -> None:
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        raise ValueError("two columns have the same name")
    if not columns or columns[0].kind != "label" or columns[0].width != 1:
        raise ValueError("the first column must be the label, of width 1")
    for column in columns:
        if column.kind not in get_args(Kind):
            raise ValueError(f"column '{column.name}' is of unknown kind '{column.kind}'")
        fixed = isinstance(column.width, int) and column.width == len(column.features) > 0
        multi_valued = (
            column.kind == "sparse" and column.width is None and len(column.features) == 1
        )
        if not (fixed or multi_valued):
            raise ValueError(f"the width of column '{column.name}' does not fit its features")


def _check_shards(dataset: Dataset) -> None:
    for shard in dataset.shards():
        if shard.file.startswith(".") or Path(shard.file).name != shard.file:
            raise UserError(
                f"{dataset.path / DATASET_FILE}: '{shard.file}' is not the name of a shard: "
                f"hidden files and other directories are not read"
            )
        file = dataset.shard_path(shard)
        if not file.is_file():
            raise UserError(f"{file}: is missing, but {DATASET_FILE} names it; copy it again")
        size = file.stat().st_size
        if size != shard.bytes:
            state = "is empty" if not size else f"has {size} bytes"
            raise UserError(
                f"{file}: {state}, but {DATASET_FILE} says {shard.bytes} bytes; copy it again"
            )


def _verify(file: Path, shard: Shard) -> None:
    with open(file, "rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != shard.sha256:
        raise UserError(f"{file}: its content has changed (SHA-256 differs); copy it again")
    try:
        rows = sum(block.count(b"\n") for block in read_blocks(file))
    except DamagedFile as error:
        raise UserError(str(error)) from error
    if rows != shard.rows:
        raise UserError(f"{file}: has {rows} rows, but {DATASET_FILE} says {shard.rows}")
