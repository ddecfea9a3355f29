"""MultiSlot text, and reading it back strictly."""

from __future__ import annotations

import math
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_config.errors import UserError
from fleetps.data.dataset import Column
from fleetps.data.rows import parse_row, validate_rows
from fleetps.data.text import Texts, float_text, id_text, list_text, row_text

COLUMNS = (
    Column("label", "label", 1, ("label",)),
    Column("dense", "dense", 2, ("a", "b")),
    Column("ids", "sparse", 2, ("s", "t")),
    Column("tags", "sparse", None, ("tags",)),
)


@given(st.lists(st.floats(min_value=-1e20, max_value=1e20, allow_nan=False), min_size=1))
def test_floats_have_six_significant_digits(numbers: list[float]) -> None:
    texts = float_text(np.array(numbers)).to_pylist()
    for number, text in zip(numbers, texts, strict=True):
        digits = text.lstrip("-").split("e")[0].replace(".", "").strip("0")
        assert len(digits) <= 6
        if abs(number) >= 1e-15:
            # A number half-way between two texts may go either way.
            assert float(text) == pytest.approx(float(f"{number:.6g}"), rel=1.001e-5)
            assert float(text) == pytest.approx(number, rel=5.001e-6)
        else:
            assert abs(float(text)) <= 2e-15
        assert text != "-0"


def test_scaled_counts_are_written_as_python_would() -> None:
    counts = np.arange(100_000)
    texts = float_text(np.log1p(counts)).to_pylist()
    assert texts == [f"{math.log1p(count):.6g}" for count in counts]


def test_rows_are_written_column_by_column() -> None:
    ids = id_text(np.array([6, 0, 5]))
    tags = pa.array([["7"], ["8", "9", "10"]])
    text = row_text(
        np.array([1, 0], np.int8),
        [
            [
                Texts(float_text(np.array([0.5, -2.0])), np.array([0, 1])),
                Texts(float_text(np.array([0.0, 1e6])), np.array([1, 0])),
            ],
            [
                Texts(id_text(np.array([0, 2**62 - 1])), np.array([0, 1])),
                Texts(ids, np.array([2, 0])),
            ],
            list_text(tags),
        ],
    )
    assert text == (b"1 1 2 0.5 1000000 2 0 5 1 7\n1 0 2 -2 0 2 4611686018427387903 6 3 8 9 10\n")
    rows = list(validate_rows(bytes(text).splitlines(keepends=True), COLUMNS, "shard"))
    assert rows[1] == {
        "label": [0.0],
        "dense": [-2.0, 0.0],
        "ids": [4611686018427387903, 6],
        "tags": [8, 9, 10],
    }


def test_no_rows_are_no_text() -> None:
    assert row_text(np.empty(0, np.int8), [[]]) == b""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 1 2 1 2 2 3 4 1 5", "cut off"),
        ("1 2 2 1 2 2 3 4 1 5\n", "the label is '2', not 0 or 1"),
        ("2 1 0 2 1 2 2 3 4 1 5\n", "column label has 2 values, not 1"),
        ("1 1 3 1 2 3 2 3 4 1 5\n", "column dense has 3 values, not 2"),
        ("1 1 2 1 nan 2 3 4 1 5\n", "column dense has 'nan', not a finite number"),
        ("1 1 2 1 inf 2 3 4 1 5\n", "column dense has 'inf'"),
        ("1 1 2 1 1e999 2 3 4 1 5\n", "column dense has '1e999'"),
        ("1 1 2 1 2 2 3 x 1 5\n", "column ids has 'x', which is not an id"),
        ("1 1 2 1 2 2 3 -1 1 5\n", "column ids has '-1'"),
        ("1 1 2 1 2 2 3 4.0 1 5\n", "column ids has '4.0'"),
        ("1 1 2 1 2 2 3 4611686018427387904 1 5\n", "which is not an id"),
        ("1 1 2 1 2 2 3 4 0\n", "column tags begins with '0'"),
        ("1 1 2 1 2 2 3 4 2 5\n", "column tags has 1 values of 2"),
        ("1 1 2 1 2 2 3 4\n", "column tags is missing"),
        ("1 1 2 1 2 2 3 4 1 5 6\n", "'6' stands behind the last column"),
        ("1 1 2 1 2  2 3 4 1 5\n", "column ids begins with ''"),
        ("1 1 2 1 2 2 3 4 1 5\r\n", "column tags has '5\\r'"),
        ("1\t1 2 1 2 2 3 4 1 5\n", "column label begins with"),
        ("\n", "column label begins with ''"),
        ("\x00\xff\n", "column label begins with"),
    ],
)
def test_malformed_rows_are_refused(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_row(line.encode("latin-1"), COLUMNS)


def test_the_first_malformed_row_is_named() -> None:
    good, bad = b"1 1 2 1 2 2 3 4 1 5\n", b"1 7 2 1 2 2 3 4 1 5\n"
    with pytest.raises(UserError, match=r"^train-0:3: the label is '7', not 0 or 1; convert"):
        list(validate_rows([good, good, bad], COLUMNS, "train-0"))
