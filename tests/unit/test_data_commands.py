"""`fleetps data` as a user runs it: messages, exit codes, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from data_reference import as_tuples, criteo_lines, criteo_rows, write_lines

from fleetps.cli import cli
from fleetps.data import progress
from fleetps.data.dataset import load_dataset
from fleetps.exits import exit_code_of

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from fleetps.cli import main; main()", "data"]
LINES = criteo_lines(100, seed=4)


def fleetps_data(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_criteo(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.txt", LINES)
    done = fleetps_data(
        *["convert", "criteo", "train.txt", "out", "--test-fraction", 0.3], cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "train         70 rows in 1 shard," in done.stdout
    assert as_tuples(load_dataset(tmp_path / "out"), "test") == criteo_rows(LINES[70:])

    shown = fleetps_data("show", "out", "--verify", "--rows", 2, cwd=tmp_path)
    assert shown.returncode == 0
    assert "every shard is complete and unchanged" in shown.stdout
    assert "row 2\n  label: " in shown.stdout
    assert "row 3" not in shown.stdout


def test_csv(tmp_path: Path) -> None:
    write_lines(tmp_path / "s.yaml", ["format: csv", "label: y", "categorical: [c]"])
    write_lines(tmp_path / "t.csv", ["y,c", "0,a", "1,b"])
    done = fleetps_data(
        *["convert", "csv", "t.csv", "out", "--schema", "s.yaml", "--test-fraction", 0],
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert load_dataset(tmp_path / "out").splits["train"].rows == 2


def test_synthetic(tmp_path: Path) -> None:
    options = ["--rows", 300, "--test-rows", 100, "--seed", 5, "--distinct-ids", 260]
    done = fleetps_data("synthetic", "out", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    dataset = load_dataset(tmp_path / "out")
    assert dataset.splits["train"].rows == 300
    assert f"best AUC      {dataset.source['best_auc']:.4f}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "criteo", "nope", "out"], "nope: does not exist"),
        (["convert", "criteo", "bad", "out"], "bad:3: has 1 columns, not 40"),
        (["convert", "criteo", "good", "."], "exists already"),
        (["convert", "criteo", "good", "out", "--split", "x"], "Invalid value for '--split'"),
        (["convert", "criteo", "good", "out", "--test-fraction", "2"], "--test-fraction must be"),
        (["convert", "csv", "good", "out", "--schema", "nope"], "schema file nope does not exist"),
        (["synthetic", "out", "--rows", "0"], "rows must be at least 1"),
        (["show", "nope"], "nope: does not exist"),
        (["show", "."], "has no dataset.json"),
        (["convert", "criteo", "good"], "Missing argument"),
    ],
)
def test_mistakes_are_sentences(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "good", LINES)
    write_lines(tmp_path / "bad", [*LINES[:2], "x", *LINES[2:]])
    assert exit_code_of(lambda: cli.main(["data", *arguments], standalone_mode=False)) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "good"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_conversion_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    # Hours of input, so the conversion is at work whenever the signal comes.
    (tmp_path / "days").mkdir()
    write_lines(tmp_path / "days" / "day_0", LINES * 20)
    for day in range(1, 3000):
        (tmp_path / "days" / f"day_{day}").hardlink_to(tmp_path / "days" / "day_0")
    process = subprocess.Popen(
        [*COMMAND, "convert", "criteo", "days", "out", "--split", "random"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not list(tmp_path.glob(".out.partial-*/train-00000*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143
    assert errors.startswith("stopped by ")
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["days"]


def test_progress_without_a_terminal_is_plain_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    with progress.meter("converting", 1000) as meter:
        meter.advance(250)
        meter.rows(1234)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "converting: 25%"
    assert lines[1].startswith("converting: 25% 1,234 rows, ")


def test_a_mistake_ends_the_process_with_its_sentence(tmp_path: Path) -> None:
    write_lines(tmp_path / "bad", [*LINES[:2], "x", *LINES[2:]])
    done = fleetps_data("convert", "criteo", "bad", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    head, quote = done.stderr.splitlines()
    assert head.startswith("1 of 101 rows so far are bad")
    assert quote == "  bad:3: has 1 columns, not 40: 'x'"


def test_what_made_a_data_set_is_written_down(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.txt", LINES)
    options = ["--bucketize", "--min-count", "2", "--split", "random", "--seed", "9"]
    raw, out = tmp_path / "train.txt", tmp_path / "out"
    cli.main(["data", "convert", "criteo", str(raw), str(out), *options], standalone_mode=False)
    source = json.loads((tmp_path / "out" / "dataset.json").read_text())["source"]
    assert source["kind"] == "criteo"
    assert source["bucketize"] is True
    assert source["options"] == {
        "test_fraction": 0.2,
        "split": "random",
        "seed": 9,
        "max_bad_fraction": 0.0,
        "min_count": 2,
        "shard_rows": 100_000,
        "compress": "zstd",
    }
