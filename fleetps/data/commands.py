"""`fleetps data`: convert raw data, make synthetic data, show what a data set holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fleetps.data.convert import ConvertOptions
from fleetps.data.convert import convert as convert_source
from fleetps.data.criteo import criteo_source
from fleetps.data.dataset import Dataset, load_dataset
from fleetps.data.inputs import list_inputs
from fleetps.data.parquet_source import ParquetSource
from fleetps.data.rows import peek_rows
from fleetps.data.schema import load_schema
from fleetps.data.source import Source
from fleetps.data.synthetic import SyntheticSpec, make_synthetic
from fleetps.data.text_source import TextSource
from fleetps.data.writer import SHARD_ROWS
from fleetps.system.signals import StopRequest

Command = TypeVar("Command", bound=Callable[..., Any])

# Whether a path is there is checked later, with the same sentence wherever it came from.
PATH = click.Path(path_type=Path)

_WRITING = [
    click.option("--shard-rows", default=SHARD_ROWS, show_default=True, help="Rows of one shard."),
    click.option(
        "--compress",
        type=click.Choice(["zstd", "gzip", "none"]),
        default="zstd",
        show_default=True,
        help="How shards are compressed.",
    ),
    click.option("--seed", default=1, show_default=True, help="Seed of what is random."),
]
_CONVERTING = [
    click.option(
        "--test-fraction",
        default=0.2,
        show_default=True,
        help="Share of the rows kept for testing.",
    ),
    click.option(
        "--split",
        type=click.Choice(["time", "random"]),
        default="time",
        show_default=True,
        help="Test on the last rows of the input, or on random ones.",
    ),
    click.option(
        "--max-bad-fraction",
        default=0.0,
        show_default=True,
        help="Share of bad rows that may be left out; above it nothing is written.",
    ),
    click.option(
        "--min-count",
        default=0,
        help="Values rarer than this among the training rows share one id per slot. [default: off]",
    ),
    *_WRITING,
]


def _with(options: list[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def data() -> None:
    """Convert, make and show data sets."""


@data.group()
def convert() -> None:
    """Convert raw files into a data set.

    INPUTS are files, plain or compressed with gzip or zstd, or directories of them; OUT is a new
    directory. All or nothing: OUT appears when everything is written.
    """


@convert.command()
@click.argument("inputs", nargs=-1, required=True, type=PATH)
@click.argument("out", type=PATH)
@click.option("--bucketize", is_flag=True, help="Make each of the 13 numbers an id, too.")
@_with(_CONVERTING)
def criteo(inputs: tuple[Path, ...], out: Path, bucketize: bool, **options: Any) -> None:
    """Criteo click logs: Kaggle's train.txt or the days of the 1 TB set."""
    wanted = ConvertOptions(**options)
    source = criteo_source(list_inputs(inputs), bucketize=bucketize)
    _convert(source, out, wanted, {"kind": "criteo", "bucketize": bucketize})


@convert.command()
@click.argument("inputs", nargs=-1, required=True, type=PATH)
@click.argument("out", type=PATH)
@click.option("--schema", "schema_file", required=True, type=PATH, help="What the columns mean.")
@_with(_CONVERTING)
def csv(inputs: tuple[Path, ...], out: Path, schema_file: Path, **options: Any) -> None:
    """CSV, TSV or Parquet files described by a schema file; conf/data/ has examples."""
    wanted = ConvertOptions(**options)
    schema = load_schema(schema_file)
    files = list_inputs(inputs)
    source: Source
    if schema.format == "parquet":
        source = ParquetSource(files, schema)
    else:
        source = TextSource(files, schema)
    _convert(source, out, wanted, {"kind": schema.format, "schema": schema.model_dump()})


@data.command()
@click.argument("out", type=PATH)
@click.option("--rows", default=400_000, show_default=True, help="Training rows.")
@click.option("--test-rows", default=100_000, show_default=True, help="Test rows.")
@click.option(
    "--distinct-ids", default=26_000, show_default=True, help="Different ids over all 26 slots."
)
@click.option("--zipf", default=1.1, show_default=True, help="Exponent of the ids' frequencies.")
@click.option("--click-rate", default=0.25, show_default=True, help="Share of clicks.")
@_with(_WRITING)
def synthetic(out: Path, **options: Any) -> None:
    """Make Criteo-like rows whose best possible AUC is known."""
    with StopRequest() as stop, stop.interrupting():
        _show(make_synthetic(out, SyntheticSpec(**options)))


@data.command()
@click.argument("directory", type=PATH)
@click.option("--verify", is_flag=True, help="Read everything: checksums and rows.")
@click.option("--rows", default=0, help="Show the first so many training rows.")
def show(directory: Path, verify: bool, rows: int) -> None:
    """Show what a data set holds."""
    dataset = load_dataset(directory)
    _show(dataset)
    if verify:
        dataset.verify()
        click.echo("verified      every shard is complete and unchanged")
    for number, row in enumerate(peek_rows(dataset, rows) if rows > 0 else [], start=1):
        click.echo(f"row {number}")
        for name, values in row.items():
            click.echo(f"  {name}: {' '.join(str(value) for value in values)}")


def _convert(source: Source, out: Path, options: ConvertOptions, made_from: dict[str, Any]) -> None:
    with StopRequest() as stop, stop.interrupting():
        _show(convert_source(source, out, options, made_from))


def _show(dataset: Dataset) -> None:
    click.echo(f"data set      {dataset.path}")
    for name, split in dataset.splits.items():
        size = sum(shard.bytes for shard in split.shards) / 1e6
        click.echo(f"{name:13} {split}, {size:,.1f} MB")
    for column in dataset.columns[1:]:
        width = f"{column.width} values" if column.width else "any number of values"
        click.echo(f"{column.name:13} {column.kind}, {width}")
    click.echo(f"different ids about {dataset.distinct_ids:,}")
    if "bad_rows" in dataset.source:
        click.echo(f"bad rows      {dataset.source['bad_rows']:,} left out")
    if "best_auc" in dataset.source:
        click.echo(f"best AUC      {dataset.source['best_auc']:.4f} (no model can beat it)")
