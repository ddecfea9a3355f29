"""The pipe command, run as Paddle runs it: a process of its own that only knows its slice."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from fleetps.data import pipe

# Rows of very different lengths, more than one read block of them.
ROWS = [f"1 {i % 2} 1 {'7' * (i % 900 + 1)}\n".encode() for i in range(3000)]
TEXT = b"".join(ROWS)

PACK: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "two gzip members": lambda text: gzip.compress(text[:7777]) + gzip.compress(text[7777:]),
    "two zstd frames": lambda text: (
        zstandard.compress(text[:7777]) + zstandard.compress(text[7777:])
    ),
}


def serve(
    shard: Path, start: int, rows: int, seed: int | None = None
) -> tuple[bytes, dict[str, object], int]:
    report = shard.with_name("slice.report")
    slice_ = {"shard": str(shard), "start": start, "rows": rows, "report": str(report)}
    slice_["shuffle_seed"] = seed
    done = subprocess.run(
        [sys.executable, "-I", pipe.__file__],
        input=json.dumps(slice_).encode(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == b""
    outcome = json.loads(report.read_text())
    assert list(report.parent.glob("*.partial")) == []
    return done.stdout, outcome, done.returncode


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize(("start", "rows"), [(0, 3000), (0, 1), (2999, 1), (1234, 777), (5, 0)])
def test_exactly_the_slice_is_written(tmp_path: Path, packed: str, start: int, rows: int) -> None:
    shard = tmp_path / "shard"
    shard.write_bytes(PACK[packed](TEXT))
    text, outcome, code = serve(shard, start, rows)
    assert text == b"".join(ROWS[start : start + rows])
    assert (outcome, code) == ({"rows": rows}, 0)


def test_rows_are_shuffled_by_the_seed(tmp_path: Path) -> None:
    shard = tmp_path / "shard"
    shard.write_bytes(zstandard.compress(TEXT))
    first, outcome, _ = serve(shard, 100, 500, seed=7)
    again, _, _ = serve(shard, 100, 500, seed=7)
    other, _, _ = serve(shard, 100, 500, seed=8)
    assert outcome == {"rows": 500}
    assert first == again != other
    assert first.splitlines(keepends=True) != ROWS[100:600]
    assert sorted(first.splitlines(keepends=True)) == sorted(ROWS[100:600])


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000])
def test_slices_do_not_depend_on_the_size_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    rows = [b"%d\n" % (10 ** (i % 4)) for i in range(40)]
    shard = tmp_path / "shard"
    shard.write_bytes(b"".join(rows))
    monkeypatch.setattr(pipe, "READ_BYTES", size)
    for start in range(41):
        for count in range(41 - start):
            parts = list(pipe.slice_rows(shard, start, count))
            assert b"".join(text for _, text in parts) == b"".join(rows[start : start + count])
            assert sum(n for n, _ in parts) == count
            assert all(text.endswith(b"\n") for _, text in parts)


@pytest.mark.parametrize("packed", ["gzip", "zstd"])
def test_a_truncated_shard_is_reported_and_only_whole_rows_are_written(
    tmp_path: Path, packed: str
) -> None:
    shard = tmp_path / "shard"
    content = PACK[packed](TEXT)
    shard.write_bytes(content[: len(content) // 2])
    text, outcome, code = serve(shard, 0, 3000)
    sentence = f"{shard}: is truncated: the {packed} stream ends too early"
    assert outcome == {"error": sentence, "damaged": True}
    assert code == 2
    assert TEXT.startswith(text)
    assert text == b"" or text.endswith(b"\n")


@pytest.mark.parametrize("packed", ["gzip", "zstd"])
def test_a_damaged_shard_is_reported(tmp_path: Path, packed: str) -> None:
    shard = tmp_path / "shard"
    content = bytearray(PACK[packed](TEXT))
    content[20:40] = bytes(20)
    shard.write_bytes(content)
    _, outcome, code = serve(shard, 0, 3000)
    assert str(outcome["error"]).startswith(f"{shard}: is damaged ({packed}: ")
    assert code == 2


def test_a_shard_with_too_few_rows_is_reported(tmp_path: Path) -> None:
    shard = tmp_path / "shard"
    shard.write_bytes(TEXT)
    text, outcome, code = serve(shard, 2990, 20)
    assert text == b"".join(ROWS[2990:])
    sentence = f"{shard}: has 3000 rows, but rows 2990 to 3010 were asked for"
    assert outcome == {"error": sentence, "damaged": True}
    assert code == 2
    _, outcome, _ = serve(shard, 5000, 20)
    assert outcome["error"] == f"{shard}: has 3000 rows, but rows 5000 to 5020 were asked for"


def test_a_last_row_without_its_end_is_not_written(tmp_path: Path) -> None:
    shard = tmp_path / "shard"
    shard.write_bytes(b"1 0 1 7\n1 1 1 8")
    text, outcome, _ = serve(shard, 0, 2)
    assert text == b"1 0 1 7\n"
    assert outcome["error"] == f"{shard}: has 1 rows, but rows 0 to 2 were asked for"


def test_a_missing_shard_is_reported(tmp_path: Path) -> None:
    shard = tmp_path / "gone"
    text, outcome, code = serve(shard, 0, 1)
    assert (text, code) == (b"", 2)
    sentence = f"{shard}: cannot be read: No such file or directory"
    assert outcome == {"error": sentence, "damaged": False}


def test_an_empty_shard_is_reported(tmp_path: Path) -> None:
    shard = tmp_path / "shard"
    shard.touch()
    _, outcome, _ = serve(shard, 0, 1)
    assert outcome["error"] == f"{shard}: has 0 rows, but rows 0 to 1 were asked for"


def test_a_reader_that_goes_away_is_reported(tmp_path: Path) -> None:
    shard, report = tmp_path / "shard", tmp_path / "report"
    shard.write_bytes(TEXT)
    slice_ = {"shard": str(shard), "start": 0, "rows": 3000, "report": str(report)}
    with subprocess.Popen(
        [sys.executable, "-I", pipe.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(json.dumps(slice_).encode())
        process.stdin.close()
        assert process.wait(timeout=60) == 2
        assert process.stderr.read() == b""
    assert "the reader went away after 0 rows" in json.loads(report.read_text())["error"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shard": "x"}'])
def test_a_slice_that_is_not_understood_is_said_on_stderr(text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-I", pipe.__file__],
        input=text.encode(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert b"is not understood" in done.stderr
    assert b"Traceback" not in done.stderr
