"""What the columns of raw data mean: the schema file of `fleetps data convert csv`.

Criteo's format is a schema, too (criteo.py). conf/data/ has commented examples.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from fleet_config.errors import UserError
from fleet_config.explain import Problem, explain
from fleet_config.section import Section
from fleet_config.source import read_source
from fleetps.data.dataset import Column

LABEL, DENSE, IDS = "label", "dense", "ids"
MISSING_SUFFIX = "_missing"

Name = Annotated[str, Field(min_length=1)]


class Schema(Section):
    """Which columns there are, and what becomes of them; a column not named is left out."""

    format: Literal["csv", "tsv", "parquet"]
    header: bool = True
    columns: list[Name] = []
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    missing: list[str] = []
    label: Name
    dense: dict[Name, Literal["log", "none"]] = {}
    bucketize: list[Name] = []
    categorical: list[Name] = []
    multi_valued: dict[Name, Name | None] = {}

    @property
    def separator(self) -> str:
        """What stands between two values of a line."""
        return self.delimiter or {"csv": ",", "tsv": "\t"}.get(self.format, "")

    @property
    def quoted(self) -> bool:
        """Whether a value may stand in double quotes."""
        return self.format == "csv"

    @property
    def used(self) -> list[str]:
        """The columns that are read."""
        return [self.label, *self.dense, *self.categorical, *self.multi_valued]

    @property
    def slots(self) -> list[str]:
        """The single-valued slots, in order; a bucketized column is a slot of its name."""
        return [*self.categorical, *self.bucketize]

    def dataset_columns(self) -> tuple[Column, ...]:
        """The columns of the data set this schema leads to."""
        columns = [Column(LABEL, "label", 1, (LABEL,))]
        if self.dense:
            marks = (f"{name}{MISSING_SUFFIX}" for name in self.dense)
            features = (*self.dense, *marks)
            columns.append(Column(DENSE, "dense", len(features), features))
        if self.slots:
            columns.append(Column(IDS, "sparse", len(self.slots), tuple(self.slots)))
        columns += (Column(name, "sparse", None, (name,)) for name in self.multi_valued)
        return tuple(columns)


def load_schema(file: Path) -> Schema:
    """Read and check a schema file."""
    if not file.is_file():
        raise UserError(f"schema file {file} does not exist; conf/data/ has examples")
    source = read_source(file, ())
    try:
        schema = Schema.model_validate(source.data)
    except ValidationError as error:
        problems = explain(error, source.data, Schema)
    else:
        problems = list(_impossible(schema))
    if problems:
        raise UserError("\n".join(f"{source.where(p.path)}: {p.sentence}" for p in problems))
    return schema


def _impossible(schema: Schema) -> Iterator[Problem]:
    if not (schema.categorical or schema.multi_valued or schema.bucketize):
        yield Problem((), "names no categorical, multi_valued or bucketize column, so no ids")
    seen: set[str] = set()
    for name in schema.used:
        if name in seen:
            yield Problem((), f"column {name} is used twice")
        seen.add(name)
    for name in schema.multi_valued:
        if name in (LABEL, DENSE, IDS):
            yield Problem(
                ("multi_valued", name), f"a multi-valued column can't be named {name}; rename it"
            )
    for name in schema.bucketize:
        if name not in schema.dense:
            yield Problem(("bucketize",), f"bucketize names {name}, which is not a dense column")
    yield from _impossible_text(schema)


def _impossible_text(schema: Schema) -> Iterator[Problem]:
    text_only = {"columns": schema.columns, "delimiter": schema.delimiter}
    if schema.format == "parquet":
        for key, value in text_only.items():
            if value:
                yield Problem((key,), f"{key} is for text files; a Parquet file doesn't need it")
        return
    if schema.delimiter and (not schema.delimiter.isascii() or schema.delimiter in '"\r\n'):
        yield Problem(("delimiter",), f"delimiter can't be {schema.delimiter!r}; use another one")
    if schema.header and schema.columns:
        yield Problem(("columns",), "columns is for files without header; set header: false")
    if not schema.header and not schema.columns:
        yield Problem(("header",), "files without header need their column names under columns:")
    if len(set(schema.columns)) < len(schema.columns):
        yield Problem(("columns",), "columns names a column twice")
    for name, separator in schema.multi_valued.items():
        if separator is None:
            yield Problem(
                ("multi_valued", name), f"multi_valued.{name} needs the text between its values"
            )
