"""CSV, TSV and Parquet files with a schema: the same table gives the same data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_reference import bucket_of, dense_of, id_of, read_rows

from fleet_config.errors import UserError
from fleetps.data.convert import ConvertOptions, convert
from fleetps.data.dataset import Dataset
from fleetps.data.parquet_source import ParquetSource
from fleetps.data.schema import Schema
from fleetps.data.text_source import TextSource

# label, price, age, item, tags, left out
TABLE: list[tuple[Any, ...]] = [
    (1, 12.5, 31, "a17", ["red", "shoe"], "x"),
    (0, None, 54, None, [], "y"),
    (0, 3.0, None, "grün, blau", ["red"], "z"),
    (1, 0.0, -2, 'say "hi"', ["blue", "red", "blue"], ""),
    (0, 1e7, 8, "7", ["shoe"], "w"),
]
NAMES = ["bought", "price", "age", "item", "tags", "other"]
MEANING: dict[str, Any] = {
    "label": "bought",
    "dense": {"price": "log", "age": "none"},
    "bucketize": ["price"],
    "categorical": ["item"],
}


def text_of(number: float | None) -> str:
    return "" if number is None else repr(number)


EXPECTED = [
    {
        "label": [float(label)],
        "dense": [
            dense_of(text_of(price)),
            float(age or 0),
            float(price is None),
            float(age is None),
        ],
        "ids": [id_of(item or "", "item"), id_of(bucket_of(text_of(price)), "price")],
        "tags": [id_of(tag, "tags") for tag in tags or [""]],
    }
    for label, price, age, item, tags, _ in TABLE
]


def quoted(value: str) -> str:
    return f'"{value.replace(chr(34), chr(34) * 2)}"' if set('",;') & set(value) else value


def text_rows(separator: str, *, quotes: bool) -> list[str]:
    rows = []
    for label, price, age, item, tags, other in TABLE:
        texts = [str(label), text_of(price), text_of(age), item or "", "|".join(tags), other]
        rows.append(separator.join(quoted(text) if quotes else text for text in texts))
    return rows


def converted(tmp_path: Path, source: TextSource | ParquetSource) -> Dataset:
    return convert(source, tmp_path / "out", ConvertOptions(test_fraction=0.0), {})


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def schema(form: str, **more: Any) -> Schema:
    tags = None if form == "parquet" else "|"
    return Schema(**{"format": form, "multi_valued": {"tags": tags}, **MEANING, **more})


@pytest.mark.parametrize("separator", [",", ";"])
def test_csv_with_header_and_quotes(tmp_path: Path, separator: str) -> None:
    lines = [separator.join(NAMES), *text_rows(separator, quotes=True)]
    source = TextSource([write(tmp_path / "t.csv", lines)], schema("csv", delimiter=separator))
    dataset = converted(tmp_path, source)
    assert read_rows(dataset, "train") == EXPECTED
    assert [(c.name, c.width, c.features) for c in dataset.columns] == [
        ("label", 1, ("label",)),
        ("dense", 4, ("price", "age", "price_missing", "age_missing")),
        ("ids", 2, ("item", "price")),
        ("tags", None, ("tags",)),
    ]
    assert dataset.distinct_ids == len(
        {i for row in EXPECTED for name in ("ids", "tags") for i in row[name]}
    )


def test_tsv_without_header(tmp_path: Path) -> None:
    file = write(tmp_path / "t.tsv", text_rows("\t", quotes=False))
    source = TextSource([file], schema("tsv", header=False, columns=NAMES))
    assert read_rows(converted(tmp_path, source), "train") == EXPECTED


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path: Path) -> None:
    lines = ["\ufeff" + ",".join(NAMES), *text_rows(",", quotes=True)]
    source = TextSource([write(tmp_path / "t.csv", lines)], schema("csv"))
    assert read_rows(converted(tmp_path, source), "train") == EXPECTED


def test_each_file_has_the_header(tmp_path: Path) -> None:
    rows = text_rows(",", quotes=True)
    files = [
        write(tmp_path / "a.csv", [",".join(NAMES), *rows[:2]]),
        write(tmp_path / "b.csv", [",".join(NAMES)]),
        write(tmp_path / "c.csv", [",".join(NAMES), *rows[2:]]),
    ]
    assert read_rows(converted(tmp_path, TextSource(files, schema("csv"))), "train") == EXPECTED
    files.append(write(tmp_path / "d.csv", [",".join(NAMES[::-1])]))
    with pytest.raises(UserError, match=r"d\.csv: its header is not the same as that of .*a\.csv"):
        TextSource(files, schema("csv"))


def test_texts_for_missing_values(tmp_path: Path) -> None:
    lines = [",".join(NAMES), "0,NA,NULL,NA,NULL,"]
    source = TextSource([write(tmp_path / "t.csv", lines)], schema("csv", missing=["NA", "NULL"]))
    (row,) = read_rows(converted(tmp_path, source), "train")
    assert row["dense"] == [0.0, 0.0, 1.0, 1.0]
    assert row["ids"] == [id_of("", "item"), id_of("", "price")]
    assert row["tags"] == [id_of("", "tags")]


def test_empty_parts_of_a_multi_value_are_left_out(tmp_path: Path) -> None:
    lines = [",".join(NAMES), "0,1,1,a,|red||blue|,", "0,1,1,a,|,", "0,1,1,a,red,"]
    source = TextSource([write(tmp_path / "t.csv", lines)], schema("csv"))
    rows = read_rows(converted(tmp_path, source), "train")
    assert [row["tags"] for row in rows] == [
        [id_of("red", "tags"), id_of("blue", "tags")],
        [id_of("", "tags")],
        [id_of("red", "tags")],
    ]


def test_quotes_that_are_not_closed_are_bad_rows(tmp_path: Path) -> None:
    lines = [
        ",".join(NAMES),
        *text_rows(",", quotes=True),
        '0,1,1,"open,red,',
        '0,1,1,5" pipe,red,',
        '0,1,1,"two',
        'lines",red,',
    ]
    file = write(tmp_path / "t.csv", lines)
    with pytest.raises(UserError) as raised:
        converted(tmp_path, TextSource([file], schema("csv")))
    quotes = str(raised.value).splitlines()[1:]
    assert [quote.split(": ")[0].strip() for quote in quotes] == [f"{file}:{n}" for n in (7, 9, 10)]
    assert all("has a quote that is not closed on the same line" in quote for quote in quotes[:2])
    assert "has 3 columns, not 6" in quotes[2]

    options = ConvertOptions(test_fraction=0.0, max_bad_fraction=0.5)
    dataset = convert(TextSource([file], schema("csv")), tmp_path / "out", options, {})
    rows = read_rows(dataset, "train")
    assert rows[:5] == EXPECTED
    assert rows[5]["ids"][0] == id_of('5" pipe', "item")
    assert len(rows) == 6


def test_the_wrong_width_of_a_quoted_line_is_noticed(tmp_path: Path) -> None:
    lines = [",".join(NAMES), *text_rows(",", quotes=True), '0,1,1,"a,b",red']
    file = write(tmp_path / "t.csv", lines)
    with pytest.raises(UserError, match=rf"{file}:7: has 5 columns, not 6"):
        converted(tmp_path, TextSource([file], schema("csv")))


def test_an_unknown_column_is_refused_with_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", [",".join(NAMES), *text_rows(",", quotes=True)])
    wrong = schema("csv", categorical=["itme"])
    with pytest.raises(UserError, match=r"column itme is not in the header of .*; did you mean it"):
        TextSource([file], wrong)
    twice = write(tmp_path / "u.csv", [",".join([*NAMES, "item"])])
    with pytest.raises(UserError, match=r"u\.csv:1: the header names column item twice"):
        TextSource([twice], schema("csv"))


def parquet(path: Path, **replaced: pa.Array) -> Path:
    columns = dict(zip(NAMES, zip(*TABLE, strict=True), strict=True))
    table = {name: pa.array(list(values)) for name, values in columns.items()}
    pq.write_table(pa.table({**table, **replaced}), path, row_group_size=2)
    return path


def test_parquet(tmp_path: Path) -> None:
    source = ParquetSource([parquet(tmp_path / "t.parquet")], schema("parquet"))
    assert source.count_rows(None) == 5
    assert read_rows(converted(tmp_path, source), "train") == EXPECTED


def test_parquet_types_that_mean_the_same(tmp_path: Path) -> None:
    file = parquet(
        tmp_path / "t.parquet",
        bought=pa.array([True, False, False, True, False]),
        age=pa.array([31, 54, None, -2, 8], pa.int8()),
        item=pa.array(["a17", None, "grün, blau", 'say "hi"', "7"]).dictionary_encode(),
        tags=pa.array(["red|shoe", None, "red", "blue|red|blue", "shoe"]),
    )
    source = ParquetSource([file], schema("parquet", multi_valued={"tags": "|"}))
    assert read_rows(converted(tmp_path, source), "train") == EXPECTED


def test_whole_numbers_of_parquet_have_the_ids_of_their_digits(tmp_path: Path) -> None:
    numbers = [7, None, 2**40, -3, 0]
    file = parquet(
        tmp_path / "t.parquet", item=pa.array(numbers), tags=pa.array([[n, 5] for n in numbers])
    )
    rows = read_rows(converted(tmp_path, ParquetSource([file], schema("parquet"))), "train")
    texts = ["" if number is None else str(number) for number in numbers]
    assert [row["ids"][0] for row in rows] == [id_of(text, "item") for text in texts]
    assert rows[0]["tags"] == [id_of("7", "tags"), id_of("5", "tags")]
    assert rows[1]["tags"] == [id_of("5", "tags")]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("bought", [1, 0, 2, 1, 0], r"t\.parquet: row 3: the label \(bought\) is 2, not 0 or 1"),
        ("bought", [1, 0, None, 1, 0], r"row 3: the label \(bought\) is missing"),
        ("price", [1.0, 2.0, 3.0, float("nan"), 1.0], "row 4: price is nan, not a finite number"),
        ("price", [1.0, float("inf"), 3.0, 1.0, 1.0], "row 2: price is inf, not a finite number"),
    ],
)
def test_bad_rows_of_parquet(tmp_path: Path, column: str, values: list[Any], message: str) -> None:
    replaced = {column: pa.array(values, from_pandas=False)}
    file = parquet(tmp_path / "t.parquet", **replaced)
    with pytest.raises(UserError, match=message):
        converted(tmp_path, ParquetSource([file], schema("parquet")))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("bought", ["a"] * 5, "column bought holds string, but numbers are needed"),
        ("price", [[1.0]] * 5, "column price holds list<.*>, but numbers are needed"),
        ("item", [1.5] * 5, "column item holds double, but text or whole numbers are needed"),
        ("tags", [1] * 5, "column tags holds int64, but lists of values are needed"),
    ],
)
def test_columns_of_the_wrong_type(
    tmp_path: Path, column: str, values: list[Any], message: str
) -> None:
    file = parquet(tmp_path / "t.parquet", **{column: pa.array(values)})
    with pytest.raises(UserError, match=message):
        ParquetSource([file], schema("parquet"))


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "t.parquet", ["no"] * 10)
    with pytest.raises(UserError, match=r"t\.parquet: is not a readable Parquet file: "):
        ParquetSource([file], schema("parquet"))
    whole = parquet(tmp_path / "u.parquet").read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"t\.parquet: is not a readable Parquet file: "):
        ParquetSource([file], schema("parquet"))
    with pytest.raises(UserError, match="has no column itme, which the schema names; did you mea"):
        ParquetSource([parquet(file)], schema("parquet", categorical=["itme"]))
