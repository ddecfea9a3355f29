"""What a checkpoint says about itself: its manifest, the file that is written last.

<number>-<UTC time>/
  manifest.json           this module
  tables/NNN/part-*.gz    table NNN as the engine wrote it, see `rows`
  dense.npz               the dense parameters, float32, by name
  optimizer-<rank>.npz    a worker's optimizer state, float32, by name
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleet_config.tables import NaiveRule
from fleetps.data.dataset import Column, Dataset

FORMAT = "fleetps-checkpoint"
VERSION = 1
MANIFEST = "manifest.json"
TABLES = "tables"
DENSE = "dense.npz"


class DamagedCheckpoint(UserError):
    """A file of a checkpoint is not what was written, or not there: the sentence names it."""


class NewerCheckpoint(UserError):
    """A newer FleetPS wrote it, and this one can't read it."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class JobRecord(_Record):
    """Attributes:
    name: job.name.
    digest, agreement: see `Job`.
    """

    name: str
    digest: str
    agreement: dict[str, JsonValue]


class World(_Record):
    """Attributes:
    servers: how many wrote it.
    ranks: of the workers that left their optimizer's state.
    """

    servers: PositiveInt
    ranks: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]


class TableChanges(_Record):
    """What a delta holds of a table.

    Attributes:
        changed: rows in its part files: those that the checkpoint before hasn't or has otherwise.
        removed: ids in its `removed-*.gz`: those that only the checkpoint before has.
        content: `chain.Content` of all rows that the table had.
    """

    changed: NonNegativeInt
    removed: NonNegativeInt
    content: str


class TableRecord(_Record):
    """Attributes:
    id: its files are in tables/<id, 3 digits>/.
    rule: the section of the job file, with all values.
    held_as: name of the rule whose state the rows carry; in mode geo servers only add, "naive".
    rows: that the table had.
    bytes: of its files.
    changes: in a delta: what its files hold; else these hold all rows.
    """

    id: NonNegativeInt
    dim: PositiveInt
    rule: dict[str, JsonValue]
    held_as: str
    shards: PositiveInt
    rows: NonNegativeInt
    bytes: NonNegativeInt
    changes: TableChanges | None = None

    @property
    def directory(self) -> str:
        """Relative to the checkpoint's."""
        return table_directory(self.id)

    @property
    def stored(self) -> int:
        """How many rows its part files hold."""
        return self.changes.changed if self.changes else self.rows


class ColumnRecord(_Record):
    """See `dataset.Column`."""

    name: str
    kind: str
    width: int | None
    features: tuple[str, ...]


class DataRecord(_Record):
    """Which data `progress` is about.

    Attributes:
        rows: of the training split.
        digest: of the checksums of all shards.
    """

    path: str
    rows: NonNegativeInt
    digest: str


class FileRecord(_Record):
    bytes: NonNegativeInt
    sha256: str


class Manifest(_Record):
    """Attributes:
    number: counts up over the job's life.
    time: UTC, ISO 8601, when it was complete.
    generation: of the job when it was made.
    kind: full, or delta: its tables hold what changed since the checkpoint `base`, beside it.
    vocabulary: what ids are taken modulo in mode geo; 0: nothing, they are kept as they are.
    dense: shape of each dense parameter.
    progress: the coordinator's record, from which it goes on.
    files: by path relative to the checkpoint; all but the manifest.
    versions: of FleetPS, Paddle and Python.
    """

    format: Literal["fleetps-checkpoint"] = "fleetps-checkpoint"
    version: Literal[1] = 1
    number: NonNegativeInt
    time: str
    generation: NonNegativeInt
    kind: Literal["full", "delta"] = "full"
    base: str | None = None
    job: JobRecord
    world: World
    data: DataRecord
    columns: tuple[ColumnRecord, ...]
    tables: dict[str, TableRecord]
    vocabulary: NonNegativeInt
    dense: dict[str, tuple[NonNegativeInt, ...]]
    progress: dict[str, JsonValue]
    files: dict[str, FileRecord]
    versions: dict[str, str]

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Manifest:
        deltas = {self.kind == "delta", self.base is not None}
        deltas |= {table.changes is not None for table in self.tables.values()}
        if len(deltas) > 1:
            raise ValueError("it is neither a full checkpoint nor a delta")
        return self

    @property
    def servers(self) -> int:
        """How many servers wrote it."""
        return self.world.servers

    @property
    def workers(self) -> int:
        """How many workers left their optimizer's state."""
        return len(self.world.ranks)

    def to_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a checkpoint; its files are not looked at.

    Raises:
        DamagedCheckpoint: there is none, or it can't be read.
        UserError: there is no such directory; NewerCheckpoint: see there.
    """
    if not directory.is_dir():
        raise UserError(f"{directory}: is not a checkpoint: there is no such directory")
    file = directory / MANIFEST
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise DamagedCheckpoint(
            f"{directory}: has no {MANIFEST}, so it is no checkpoint, or one that was never "
            "completed; use another one"
        ) from None
    except OSError as error:
        raise UserError(f"{file}: can't be read: {error.strerror}") from None
    return parse_manifest(content, file)


def parse_manifest(content: bytes, file: object) -> Manifest:
    """Read and check the text of a manifest; `file` is where it comes from.

    Raises:
        DamagedCheckpoint, NewerCheckpoint: it is no manifest; see there.
    """
    try:
        document = json.loads(content)
    except ValueError:
        raise DamagedCheckpoint(f"{file}: is damaged: not JSON; use another checkpoint") from None
    _check_version(file, document)
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DamagedCheckpoint(
            f"{file}: is damaged: {where}: {first['msg'].lower()}; use another checkpoint"
        ) from None


def _check_version(file: object, document: Any) -> None:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DamagedCheckpoint(f'{file}: is damaged: "format" is not "{FORMAT}"')
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise NewerCheckpoint(
            f"{file}: is of version {version}, but this FleetPS reads version {VERSION} only; "
            "use the FleetPS that wrote it, or a newer one"
        )


def table_directory(table_id: int) -> str:
    """Where the engine puts a table, relative to the checkpoint."""
    return f"{TABLES}/{table_id:03}"


def optimizer_file(rank: int) -> str:
    """Name of the file with the optimizer's state of a worker."""
    return f"optimizer-{rank}.npz"


def held_as(job: Job, table: str) -> str:
    """Name of the rule whose state a table's rows carry on the servers."""
    return NaiveRule().name if "geo" in job.mode_names else job.tables[table].rule.name


def column_records(columns: Iterable[Column]) -> tuple[ColumnRecord, ...]:
    """The columns as a manifest has them."""
    return tuple(ColumnRecord(**vars(column)) for column in columns)


def data_record(dataset: Dataset) -> DataRecord:
    """Which data this is; two copies of it are the same."""
    digest = hashlib.sha256()
    for name, split in sorted(dataset.splits.items()):
        digest.update(f"{name} {[(shard.rows, shard.sha256) for shard in split.shards]}\n".encode())
    return DataRecord(
        path=str(dataset.path),
        rows=dataset.split("train").rows,
        digest=digest.hexdigest()[:16],
    )


def table_records(
    job: Job, ids: Mapping[str, int], rows: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, TableRecord]:
    """Of all tables of a job; `ids`, `rows` and `sizes` (bytes) by table name."""
    return {
        name: TableRecord(
            id=ids[name],
            dim=table.dim,
            rule=table.rule.model_dump(mode="json"),
            held_as=held_as(job, name),
            shards=job.table_shards(name),
            rows=rows[name],
            bytes=sizes[name],
        )
        for name, table in job.tables.items()
    }
