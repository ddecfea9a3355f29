"""Criteo's click logs: the Kaggle form and the 1 TB form have the same 40 columns.

Label, 13 whole numbers I1-I13 and 26 categories C1-C26, separated by tabs, without header;
an empty value is missing.
"""

from collections.abc import Sequence
from pathlib import Path

from fleet_config.errors import UserError
from fleetps.data.inputs import head_line
from fleetps.data.schema import Schema
from fleetps.data.text_source import TextSource

_NUMBERS = [f"I{i}" for i in range(1, 14)]
_CATEGORIES = [f"C{i}" for i in range(1, 27)]
_COLUMNS = 1 + len(_NUMBERS) + len(_CATEGORIES)


def criteo_schema(*, bucketize: bool) -> Schema:
    """Return the schema; with `bucketize` each number is an id, too."""
    return Schema(
        format="tsv",
        header=False,
        columns=["label", *_NUMBERS, *_CATEGORIES],
        label="label",
        dense=dict.fromkeys(_NUMBERS, "log"),
        bucketize=_NUMBERS if bucketize else [],
        categorical=_CATEGORIES,
    )


def criteo_source(files: Sequence[Path], *, bucketize: bool) -> TextSource:
    """Open Criteo files."""
    for file in files:
        width = head_line(file).count(b"\t") + 1
        if width == _COLUMNS - 1:
            raise UserError(
                f"{file}: its first line has {width} columns, so the label is missing "
                "(as in Kaggle's test.txt); convert train.txt"
            )
    return TextSource(files, criteo_schema(bucketize=bucketize))
