"""An installation that can't train is refused before anything is started."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from fleet_config.errors import EXIT_USER, UserError
from fleet_config.job import Job
from fleetps import launch
from fleetps.installation import check_installation

TRAIN = Path(__file__).resolve().parents[2] / "train.py"

GOOD = {"paddlepaddle": "2.6.2", "protobuf": "4.25.9", "numpy": "1.26.4"}


def install(monkeypatch: pytest.MonkeyPatch, **packages: str | None) -> None:
    def version(name: str) -> str:
        found = {**GOOD, **packages}.get(name)
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.mark.parametrize(
    ("packages", "sentence"),
    [
        ({"protobuf": "5.29.3"}, "protobuf 5.29.3: .* pip install 'protobuf<5'"),
        ({"numpy": "2.1.0"}, "numpy 2.1.0: .* pip install 'numpy<2'"),
        ({"numpy": None}, "numpy is missing"),
        ({"paddlepaddle": "3.1.1"}, "PaddlePaddle 3.1.1 is not supported"),
        ({"paddlepaddle": None}, "PaddlePaddle is missing"),
    ],
)
def test_one_sentence_with_the_mend(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str | None], sentence: str
) -> None:
    install(monkeypatch, **packages)
    with pytest.raises(UserError, match=sentence):
        check_installation()


def test_what_is_pinned_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    check_installation()


def test_a_refused_launch_makes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, paddlepaddle="3.1.1")
    job = {"job": {"name": "a", "output": tmp_path / "runs"}, "data": {"path": tmp_path / "data"}}
    with pytest.raises(UserError, match=r"2\.6\.2"):
        launch.run(Job.model_validate(job))
    assert list(tmp_path.iterdir()) == []


def test_train_without_the_environment_says_how_to_get_it() -> None:
    # Isolated and without site-packages, so that only Python's own modules are found.
    command = [sys.executable, "-S", "-E", str(TRAIN), "--config", "conf/quickstart.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_USER
    assert "make setup, then . .venv/bin/activate" in done.stderr
    assert "Traceback" not in done.stderr
