"""A real job that the tests here look at, and what they need of Debian's packages."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from running_job import (
    FLEETPS,
    ROOT,
    Program,
    job_file,
)

from fleetps.coordinator.reports import Status

ARTIFACTS = ROOT / "test-artifacts"
ROWS, EPOCHS = 6_000, 500


class LiveJob:
    """A launched job, and the coordinator's answers."""

    def __init__(self, directory: Path, data: Path) -> None:
        job = job_file(
            directory,
            data,
            name="seen",
            servers=2,
            workers=2,
            epochs=EPOCHS,
            task_rows=1_000,
            checkpoint_tasks=12,
            mode="{name: bounded, staleness: 64}",
        )
        self.run = directory / "runs" / "seen"
        command = [*FLEETPS, "launch", "--config", str(job), "--set", "observe.gradient_norm=true"]
        self.program = Program(command, directory)
        self.program.wait_for_output("epoch 1/")

    @property
    def address(self) -> str:
        return (self.run / "coordinator.address").read_text().strip()

    @property
    def token_file(self) -> Path:
        return self.run / "coordinator.token"

    def get(self, path: str) -> httpx.Response:
        token = self.token_file.read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"http://{self.address}{path}", headers=headers, timeout=10)

    def status(self) -> Status:
        return Status.model_validate_json(self.get("/status").content)


def needs(program: str, package: str) -> str:
    """The path of a program; the test is skipped where it isn't installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(
            f"{program} is missing: apt-get install {package} (scripts/install_monitoring.sh)"
        )
    return found
