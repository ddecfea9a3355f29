"""The command line: what reaches a person, and with which exit code."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from fleet_config.errors import Stopped, TryAgain, UserError
from fleet_config.job import Job
from fleetps import __version__, statusline
from fleetps.cli import cli
from fleetps.exits import exit_code_of, logged
from fleetps.main import command as train

ROOT = Path(__file__).resolve().parents[2]
LEAST = "job: {name: x}\ndata: {path: d}\n"


def fleetps(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from fleetps.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def raising(error: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("a sentence"), 2),
        (TryAgain("a sentence"), 75),
        (Stopped("a sentence"), 143),
        (click.UsageError("a sentence"), 2),
    ],
)
def test_errors_for_people_become_a_sentence_and_a_code(error, code: int, capsys) -> None:
    assert exit_code_of(raising(error)) == code
    assert "a sentence" in capsys.readouterr().err


def test_other_ends(capsys) -> None:
    assert exit_code_of(lambda: None) == 0
    assert exit_code_of(lambda: 7) == 7
    assert exit_code_of(raising(KeyboardInterrupt())) == 143
    assert capsys.readouterr() == ("", "stopped by Ctrl-C\n")


def test_to_be_stopped_is_no_error(caplog) -> None:
    caplog.set_level(logging.INFO)
    log = logging.getLogger("fleetps")
    assert [logged(error, log) for error in (Stopped("a"), TryAgain("b"))] == [143, 75]
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR"]


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code_of(lambda: 1 // 0)


def test_help_names_the_commands(capsys) -> None:
    assert exit_code_of(lambda: cli.main(["--help"], standalone_mode=False)) == 0
    said = capsys.readouterr().out
    for command in ("launch", "data", "doctor", "status"):
        assert command in said
    assert exit_code_of(lambda: cli.main(["--version"], standalone_mode=False)) == 0
    assert __version__ in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    heavy = ("paddle", "numpy", "pyarrow", "pydantic", "fastapi", "httpx", "rich", "yaml")
    code = f"import fleetps.cli, sys; print([one for one in {heavy} if one in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["launch", "--config", "none.yaml"], "none.yaml does not exist"),
        (["launch", "--config", "job.yaml", "--set", "job.nam=y"], "did you mean job.name?"),
        (["launch", "--config", "job.yaml", "--set", "model.name=deepfn"], "did you mean deepfm?"),
        (["launch", "--config", "job.yaml", "--workers", "0"], "cluster.workers must be at least"),
        (["launch"], "Missing option '--config'"),
        (["lunch"], "No such command 'lunch'"),
        (["doctor", "--dry-run"], "--dry-run needs a job"),
        (["status"], "--run runs/NAME, or --coordinator host:port"),
        (["status", "--run", "runs/x"], "no coordinator has run in runs/x"),
        (["status", "--run", "runs/x", "--coordinator", "h:1"], "name the job twice"),
        (["status", "--coordinator", "here"], "not of the form host:port"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(
    tmp_path: Path, monkeypatch, capsys, arguments: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(LEAST, encoding="utf-8")
    assert exit_code_of(lambda: cli.main(arguments, standalone_mode=False)) == 2
    said = capsys.readouterr()
    assert part in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_the_command_is_a_process_with_an_exit_code(tmp_path: Path) -> None:
    done = fleetps("launch", "--config", "none.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "none.yaml does not exist; conf/ has ready job files\n"


def test_ctrl_c_before_it_is_loaded(tmp_path: Path) -> None:
    """A stand-in for click presses it."""
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "click.py").write_text(code, encoding="utf-8")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [sys.executable, "-m", "fleetps", "--help"],
        env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (143, "stopped by Ctrl-C\n")


def test_a_wrong_variable_is_blamed_on_itself(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETPS_LOG_FORMAT", "xml")
    for main in (cli, train):
        words = ["launch"] if main is cli else []
        code = exit_code_of(
            lambda main=main, words=words: main.main(
                [*words, "--config", "x"], standalone_mode=False
            )
        )
        assert code == 2
        said = capsys.readouterr().err
        assert "Invalid value for the environment variable FLEETPS_LOG_FORMAT: 'xml'" in said
        assert "--log-format" not in said
    code = exit_code_of(
        lambda: train.main(["--config", "x", "--log-format", "xml"], standalone_mode=False)
    )
    assert code == 2
    assert "Invalid value for '--log-format': 'xml'" in capsys.readouterr().err


def test_an_error_is_json_where_lines_are_json(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(LEAST, encoding="utf-8")
    done = fleetps("launch", "--config", "job.yaml", "--log-format", "json", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = map(json.loads, done.stdout.splitlines())
    assert line["level"] == "error"
    assert "does not exist; a data set is" in line["message"]


def test_status_of_nobody_is_worth_another_try(free_port: int, monkeypatch) -> None:
    monkeypatch.setattr(statusline, "_PATIENCE", 0.2)
    with pytest.raises(TryAgain, match=f"127.0.0.1:{free_port}"):
        statusline.show(f"127.0.0.1:{free_port}", None, as_json=False)


def test_options_of_launch_are_short_for_set(tmp_path: Path, monkeypatch) -> None:
    jobs: list[Job] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fleetps.launch.run", lambda job: jobs.append(job) or 0)
    (tmp_path / "job.yaml").write_text(LEAST, encoding="utf-8")
    options = ["--name", "y", "--servers", "2", "--workers", "3", "--threads", "4"]
    arguments = ["launch", "--config", "job.yaml", *options, "--log-format", "json"]
    cli.main([*arguments, "--set", "cluster.servers=9"], standalone_mode=False)
    (job,) = jobs
    assert job.job.name == "y"
    assert (job.cluster.servers, job.cluster.workers, job.cluster.threads) == (2, 3, 4)
    assert job.observe.log_format == "json"
