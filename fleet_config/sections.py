"""The sections of the job file. conf/reference.yaml shows every key with a comment."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, PlainValidator
from pydantic_core import PydanticCustomError

from fleet_config.section import (
    AUTO,
    AutoOrCount,
    Count,
    CountOrZero,
    Positive,
    Seconds,
    Section,
    text_of,
)

JobName: TypeAlias = Annotated[
    str,
    text_of(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", "lower-case letters, digits and dashes (1-40)"),
]
TableName: TypeAlias = Annotated[
    str, text_of(r"[a-z][a-z0-9_]{0,39}", "named with lower-case letters, digits and _ (1-40)")
]
BatchSize: TypeAlias = Annotated[int, Field(ge=1, le=65_536)]
Seed: TypeAlias = Annotated[int, Field(ge=0, le=2**31 - 1)]


def _without_nul(path: Path) -> Path:
    if "\0" in str(path):
        raise PydanticCustomError("expected", "a path without NUL characters")
    return path


FilePath: TypeAlias = Annotated[Path, Field(strict=False), AfterValidator(_without_nul)]


def _resume(value: Any) -> Path | str:
    # A union would be reported once per branch; this is one sentence.
    if value in ("auto", "never"):
        return str(value)
    if isinstance(value, str | Path) and str(value):
        return _without_nul(Path(value))
    raise PydanticCustomError("expected", "auto, never or the path of a checkpoint")


Resume: TypeAlias = Annotated[Path | Literal["auto", "never"], PlainValidator(_resume)]
Url: TypeAlias = Annotated[
    str,
    text_of(r"[a-z][a-z0-9+.-]*://.+", "a URL, such as s3://bucket/checkpoints or file:///mnt/b"),
]


def _check_compress(value: Any) -> Any:
    if value in ("lz4", "gzip"):
        why = {
            "lz4": "Paddle's RPC library is built without it and would lose every push",
            "gzip": "it is zlib with a longer header",
        }
        sentence = f"{value} is not offered, as {why[value]}; use snappy or zlib"
        raise PydanticCustomError("sentence", "{text}", {"text": sentence})
    return value


Compress: TypeAlias = Annotated[Literal["none", "snappy", "zlib"], BeforeValidator(_check_compress)]


class JobSection(Section):
    """The run as a whole."""

    name: JobName
    seed: Seed = 1
    epochs: Count = 1
    output: FilePath = Path("runs")


class Deadlines(Section):
    """The longest that anything is waited for, in seconds."""

    rendezvous: Seconds = 60.0
    server_start: Seconds = 60.0
    first_step: Seconds = 120.0
    step: Seconds = 60.0
    barrier: Seconds = 120.0
    checkpoint: Seconds = 1800.0
    stop: Seconds = 10.0
    # For the checkpoint that is taken when a job is asked to stop; `stop` begins after it.
    grace: Seconds = 20.0
    # For what is done with a checkpoint while training goes on, copying it to the mirror above all.
    upkeep: Seconds = 3600.0


class ClusterSection(Section):
    """How many processes of each role, and how patient they are."""

    servers: Annotated[int, Field(ge=1, le=1024)] = 1
    workers: Annotated[int, Field(ge=1, le=10_000)] = 1
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    # Not counted on the spot: peers on unlike machines would disagree about the table shards.
    server_cores: Annotated[int, Field(ge=1, le=1024)] = 4
    heartbeat: Annotated[float, Field(ge=0.1, le=60)] = 2.0
    # How often in a row a process that died is started again before it is given up.
    restarts: CountOrZero = 3
    # How often in a row a job begins again from the same checkpoint before it fails.
    generations: CountOrZero = 10
    # Of what workers push to servers.
    compress: Compress = "none"
    deadlines: Deadlines = Deadlines()


class SyntheticData(Section):
    """How to make the data set at data.path where there is none yet."""

    rows: Count
    test_rows: Count
    seed: Seed = 1
    # Over all 26 sparse slots; zipf is the exponent of their frequencies.
    distinct_ids: Annotated[int, Field(ge=52)] = 26_000
    zipf: Annotated[float, Field(ge=0, le=4)] = 1.1
    click_rate: Annotated[float, Field(gt=0, lt=1)] = 0.25


class DataSection(Section):
    """What is trained on."""

    path: FilePath
    batch_size: BatchSize = 512
    task_rows: AutoOrCount = AUTO
    shuffle: bool = True
    synthetic: SyntheticData | None = None


class ModelSection(Section):
    """Which network; its params are checked by the network's own schema in fleetps.models."""

    name: Annotated[str, Field(min_length=1)] = "deepfm"
    params: dict[str, JsonValue] = Field(default_factory=dict)


class EvaluateSection(Section):
    """When and on what to evaluate; every_epochs 0 = never."""

    every_epochs: CountOrZero = 1
    batch_size: BatchSize = 2048
    split: Annotated[str, Field(min_length=1)] = "test"


class CheckpointEvery(Section):
    """When one is made; each that is given counts from the last one, whatever made it."""

    epochs: Count | None = 1
    tasks: Count | None = None
    rows: Count | None = None
    minutes: Positive | None = None


class CheckpointSection(Section):
    """What a job leaves to go on from, and where it begins. `path` None: checkpoints/ of the run.

    full_every: every so many are whole, the others hold what changed since the one before.
    mirror: a second place, to which each is copied while training goes on.
    resume: auto = where the last run of this name stopped, never, or from a certain checkpoint.
    warm_start: a checkpoint whose weights a job begins with that has nothing to go on from.
    """

    every: CheckpointEvery = CheckpointEvery()
    keep: Count = 3
    # Beside those, every checkpoint with a number divisible by it.
    keep_every: Count | None = None
    full_every: Count = 1
    path: FilePath | None = None
    mirror: Url | None = None
    resume: Resume = "auto"
    warm_start: FilePath | None = None

    @property
    def has_upkeep(self) -> bool:
        """Whether there is anything to do with one after it was made."""
        return self.full_every > 1 or self.mirror is not None


class Straggler(Section):
    """A worker whose steps take `times` as long as the others' for so many seconds."""

    times: Annotated[float, Field(gt=1)] = 3.0
    seconds: Seconds = 30.0


class WatchSection(Section):
    """What is looked out for while a job trains.

    on_nan: what becomes of a job whose loss is no number any more, or explodes.
    explode: how many times the mean so far (or ln 2, if that is more) a loss may be; None: any.
    """

    on_nan: Literal["stop", "skip_task"] = "stop"
    explode: Annotated[float, Field(gt=1)] | None = 10.0
    # Tasks that a job may leave out before it is stopped after all.
    most_skipped: Count = 5
    straggler: Straggler = Straggler()
    # Seconds without a step after which it is said who is waited for.
    no_progress: Seconds = 20.0


class Host(Section):
    """A machine on which scripts/ssh_cluster.py runs a part of the job.

    `address` is where ssh and the other hosts reach it; user and key None: as ssh would choose.
    `directory` is there, from its user's home; python None: .venv/bin/python in it, or python3.
    """

    address: Annotated[
        str, text_of(r"[A-Za-z0-9][A-Za-z0-9._:-]*", "a host name or address, without user or port")
    ]
    port: Annotated[int, Field(ge=1, le=65_535)] = 22
    user: Annotated[str, Field(min_length=1)] | None = None
    key: FilePath | None = None
    coordinator: bool = False
    servers: CountOrZero = 0
    workers: CountOrZero = 0
    directory: Annotated[str, text_of(r"[^\0\n]+", "a directory")] = "~/fleetps"
    python: Annotated[str, text_of(r"[^\0\n]+", "the path of a Python")] | None = None


class ObserveSection(Section):
    """What people see while it runs."""

    progress_seconds: Annotated[float, Field(ge=0.2, le=3600)] = 5.0
    log_format: Literal["text", "json"] = "text"
    tensorboard: bool = True
    gradient_norm: bool = False
