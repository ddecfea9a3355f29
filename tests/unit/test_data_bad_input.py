"""Bad rows and bad files: named by file and line, and nothing is left half-written."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from data_reference import as_tuples, criteo_lines, criteo_rows, write_lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_data_criteo import converted

from fleet_config.errors import UserError
from fleetps.data import writer

LINES = criteo_lines(60, seed=2)


def with_value(line: str, column: int, value: str) -> str:
    values = line.split("\t")
    values[column] = value
    return "\t".join(values)


BAD: dict[str, tuple[Callable[[str], str], str]] = {
    "too few columns": (lambda _: "1\t2\t3", "has 3 columns, not 40: '1\\t2\\t3'"),
    "too many columns": (lambda line: line + "\tx", "has 41 columns, not 40"),
    "empty line": (lambda _: "", "the line is empty: ''"),
    "blank line": (lambda _: "  ", "the line is empty"),
    "letters in a number": (lambda line: with_value(line, 3, "12a"), "I3 is '12a', not a finite"),
    "NaN": (lambda line: with_value(line, 1, "nan"), "I1 is 'nan', not a finite number"),
    "infinity": (lambda line: with_value(line, 13, "-inf"), "I13 is '-inf', not a finite"),
    "too large": (lambda line: with_value(line, 2, "1e999"), "I2 is '1e999', not a finite"),
    "hexadecimal": (lambda line: with_value(line, 2, "0x10"), "I2 is '0x10', not a finite"),
    "underscores": (lambda line: with_value(line, 2, "1_0"), "I2 is '1_0', not a finite"),
    "label 2": (lambda line: with_value(line, 0, "2"), "the label (label) is '2', not 0 or 1"),
    "label -1": (lambda line: with_value(line, 0, "-1"), "the label (label) is '-1', not 0 or 1"),
    "label in letters": (
        lambda line: with_value(line, 0, "yes"),
        "the label (label) is 'yes', not 0 or 1",
    ),
    "no label": (lambda line: with_value(line, 0, ""), "the label (label) is missing"),
    "carriage return": (lambda line: with_value(line, 20, "a\rb"), "has a carriage return inside"),
    "not UTF-8": (lambda _: "\udcff\udcfe", "has 1 columns, not 40"),
}


def write_raw(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    return path


def assert_nothing_written(directory: Path) -> None:
    assert [path.name for path in directory.iterdir() if "out" in path.name] == []


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_row_is_refused_and_named(tmp_path: Path, kind: str) -> None:
    spoil, reason = BAD[kind]
    raw = write_raw(tmp_path / "raw", [*LINES[:7], spoil(LINES[7]), *LINES[8:]])
    with pytest.raises(UserError) as raised:
        converted(tmp_path / "out", raw)
    head, quote = str(raised.value).splitlines()
    assert head.startswith("1 of 60 rows so far are bad, more than the 0 that --max-bad-fraction")
    assert quote.startswith(f"  {raw}:8: {reason}")
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_row_may_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    spoil, reason = BAD[kind]
    raw = write_raw(tmp_path / "raw", [*LINES[:7], spoil(LINES[7]), *LINES[8:]])
    dataset = converted(tmp_path / "out", raw, max_bad_fraction=0.02)
    expected = criteo_rows(LINES[:7] + LINES[8:])
    assert as_tuples(dataset, "train") + as_tuples(dataset, "test") == expected
    # The split goes by lines, bad ones as well.
    assert dataset.splits["test"].rows == 12
    assert dataset.source["bad_rows"] == 1
    assert f"left out: {raw}:8: {reason}" in caplog.text


def test_all_bad_rows_are_counted_and_the_first_ones_quoted(tmp_path: Path) -> None:
    lines = list(LINES)
    for place, (spoil, _) in enumerate(BAD.values()):
        lines[3 * place] = spoil(lines[3 * place])
    raw = write_raw(tmp_path / "raw", lines)
    with pytest.raises(UserError) as raised:
        converted(tmp_path / "out", raw, max_bad_fraction=0.2)
    head, *quotes, more = str(raised.value).splitlines()
    assert head.startswith(f"{len(BAD)} of 60 rows are bad, more than the 0.2 that")
    assert [quote.split(":")[1] for quote in quotes] == ["1", "4", "7", "10", "13"]
    assert more == f"  and {len(BAD) - 5} more"
    assert_nothing_written(tmp_path)

    dataset = converted(tmp_path / "out", raw, max_bad_fraction=len(BAD) / 60)
    good = [line for place, line in enumerate(LINES) if place % 3 or place // 3 >= len(BAD)]
    assert as_tuples(dataset, "train") + as_tuples(dataset, "test") == criteo_rows(good)


def test_lines_are_numbered_within_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetps.data.inputs.BLOCK_BYTES", 7000)
    monkeypatch.setattr("fleetps.data.pipe.READ_BYTES", 700)
    first = write_lines(tmp_path / "a", LINES)
    second = write_raw(tmp_path / "b", [*LINES[:41], "x", *LINES])
    with pytest.raises(UserError, match=rf"{second}:42: has 1 columns"):
        converted(tmp_path / "out", first, second)
    with pytest.raises(UserError, match=rf"1 of \d+ rows .*\n  {second}:42: has 1 columns"):
        converted(tmp_path / "out", first, second, min_count=2)
    assert_nothing_written(tmp_path)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_are_either_rows_or_bad_rows(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Whatever is in a file, each line is accounted for and each row written is right."""
    tmp_path = tmp_path_factory.mktemp("fuzz")
    lines = [line.encode() for line in LINES[:12]]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        junk = data.draw(
            st.binary(max_size=8) | st.sampled_from([b"\t", b"\r", b'"', b" 5", b"+1"])
        )
        start = data.draw(st.integers(0, len(lines[place])))
        lines[place] = lines[place][:start] + junk + lines[place][start:]
    raw = tmp_path / "raw"
    raw.write_bytes(b"\n".join(lines) + b"\n")
    count = raw.read_bytes().count(b"\n")
    dataset = converted(tmp_path / "out", raw, max_bad_fraction=0.99)
    rows = sum(split.rows for split in dataset.splits.values())
    assert rows + dataset.source["bad_rows"] == count
    dataset.verify()


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
@pytest.mark.parametrize("options", [{}, {"split": "random"}, {"min_count": 2}])
def test_a_truncated_file_is_named(
    tmp_path: Path, pack: Callable[[bytes], bytes], options: dict[str, Any]
) -> None:
    raw = tmp_path / "raw"
    content = pack(write_lines(tmp_path / "plain", LINES).read_bytes())
    raw.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=rf"^{raw}: is truncated: the \w+ stream ends too early$"):
        converted(tmp_path / "out", raw, **options)
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda _: None, "raw: does not exist"),
        (lambda p: p.touch(), "raw: is empty; remove it"),
        (lambda p: p.mkdir(), "raw: holds no files to convert"),
        (lambda p: (p.mkdir(), (p / ".hidden").write_text("x")), "raw: holds no files to convert"),
        (lambda p: (p.mkdir(), (p / "part").touch()), "raw/part: is empty"),
        (lambda p: p.write_bytes(b"\x1f\x8b\x08junk" * 20), "raw: is damaged \\(gzip: "),
    ],
)
def test_bad_files_are_named(
    tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    prepare(tmp_path / "raw")
    with pytest.raises(UserError, match=message) as raised:
        converted(tmp_path / "out", tmp_path / "raw")
    assert "\n" not in str(raised.value)
    assert_nothing_written(tmp_path)


def test_hidden_files_and_inner_directories_are_skipped_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    raw = tmp_path / "raw"
    (raw / "inner").mkdir(parents=True)
    write_lines(raw / "part", LINES)
    write_lines(raw / ".part", LINES)
    assert as_tuples(converted(tmp_path / "out", raw), "train") == criteo_rows(LINES[:48])
    assert f"{raw}/.part: hidden, so it is skipped" in caplog.text
    assert f"{raw}/inner: a directory inside an input directory is skipped" in caplog.text


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw", LINES)
    keep = write_lines(tmp_path / "out", ["keep me"])
    with pytest.raises(UserError, match="out: exists already; remove it or choose another"):
        converted(keep, raw)
    assert keep.read_text() == "keep me\n"
    with pytest.raises(UserError, match="exists already"):
        converted(tmp_path, raw)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert converted(empty, raw).splits["train"].rows == 48


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw", LINES)
    with pytest.raises(UserError, match="raw/out: cannot be written: "):
        converted(raw / "out", raw)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = write_lines(tmp_path / "raw", LINES)

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer.os, "fsync", no_space)
    with pytest.raises(UserError, match="out: writing failed: No space left on device"):
        converted(tmp_path / "out", raw)
    assert_nothing_written(tmp_path)


def test_what_a_killed_conversion_left_is_mentioned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    raw = write_lines(tmp_path / "raw", LINES)
    (tmp_path / ".out.partial-123").mkdir()
    converted(tmp_path / "out", raw)
    assert ".out.partial-123: is left from a conversion that was killed" in caplog.text


def test_an_input_without_training_rows_is_refused(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw", LINES[:1])
    with pytest.raises(UserError, match="no training rows among the 1 rows of the input"):
        converted(tmp_path / "out", raw, test_fraction=0.9)
    assert_nothing_written(tmp_path)
