"""Schema files: the examples, and what is wrong with others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from data_reference import id_of, read_rows

from fleet_config.errors import UserError
from fleetps.data.convert import ConvertOptions, convert
from fleetps.data.schema import load_schema
from fleetps.data.text_source import TextSource


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


EXAMPLES = Path(__file__).parents[2] / "conf" / "data"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_the_examples_are_valid(file: Path) -> None:
    assert load_schema(file).slots


def test_the_example_of_avazu_fits_its_header(tmp_path: Path) -> None:
    names = (
        "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,"
        "app_category,device_id,device_ip,device_model,device_type,device_conn_type,"
        "C14,C15,C16,C17,C18,C19,C20,C21"
    )
    values = "123456789012345678901,1,14102100,1005,0,1fbe01fe,f3845767,28905ebd" + ",9" * 16
    source = TextSource(
        [write(tmp_path / "t.csv", [names, values])], load_schema(EXAMPLES / "avazu.yaml")
    )
    dataset = convert(source, tmp_path / "out", ConvertOptions(test_fraction=0.0), {})
    (row,) = read_rows(dataset, "train")
    assert row["label"] == [1.0]
    assert row["ids"][:5] == [
        id_of(value, slot)
        for value, slot in [
            ("14102100", "hour"),
            ("1005", "C1"),
            ("0", "banner_pos"),
            ("1fbe01fe", "site_id"),
            ("f3845767", "site_domain"),
        ]
    ]
    assert len(row["ids"]) == 22
    assert json.loads((dataset.path / "dataset.json").read_text())["columns"][1]["width"] == 22


GOOD = {
    "format": "csv",
    "label": "click",
    "categorical": "[a, b]",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"categorial": "[a]"}, r"s.yaml:4: categorial is not a known key; did you mean categoric"),
        ({"label": None}, r"label is missing"),
        ({"format": "xls"}, r"s.yaml:1: format must be csv, tsv or parquet, not the text 'xls'"),
        ({"header": "maybe"}, r"s.yaml:4: header must be true or false"),
        ({"dense": "{x: sqrt}"}, r"s.yaml:4: dense.x must be log or none, not the text 'sqrt'"),
        ({"delimiter": "ab"}, r"s.yaml:4: delimiter must be"),
        ({"categorical": "[]"}, "names no categorical, multi_valued or bucketize column"),
        ({"categorical": "[a, a]"}, "column a is used twice"),
        ({"dense": "{click: log}"}, "column click is used twice"),
        ({"bucketize": "[z]"}, r"s.yaml:4: bucketize names z, which is not a dense column"),
        ({"multi_valued": "{ids: ' '}"}, r"multi-valued column can't be named ids"),
        ({"multi_valued": "{t: }"}, r"multi_valued.t needs the text between its values"),
        ({"header": "false"}, r"s.yaml:4: files without header need their column names"),
        ({"columns": "[a, b, click]"}, r"columns is for files without header"),
        ({"header": "false", "columns": "[a, b, a]"}, r"columns names a column twice"),
        ({"delimiter": '"、"'}, r"s.yaml:4: delimiter can't be '、'; use another one"),
        ({"format": "parquet", "delimiter": "'|'"}, r"delimiter is for text files"),
    ],
)
def test_mistakes_in_a_schema_file(
    tmp_path: Path, changes: dict[str, str | None], message: str
) -> None:
    lines = [f"{key}: {value}" for key, value in {**GOOD, **changes}.items() if value is not None]
    file = write(tmp_path / "s.yaml", lines)
    with pytest.raises(UserError, match=message):
        load_schema(file)


def test_a_missing_schema_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"schema file .*nope\.yaml does not exist; conf/data/"):
        load_schema(tmp_path / "nope.yaml")
