"""One real job for all tests here, and what they need of Debian's packages."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from running_job import (
    END_SECONDS,
    FLEETPS,
    ROOT,
    START_SECONDS,
    Program,
    job_file,
    kill_everything,
    wait_until,
)

from fleetps.coordinator.reports import Status
from fleetps.data.synthetic import SyntheticSpec, make_synthetic

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
        self.program = Program([*FLEETPS, "launch", "--config", str(job)], directory)
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


@pytest.fixture(scope="session")
def live_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveJob]:
    """It trains until the tests are over, has evaluated an epoch and saved a checkpoint."""
    directory = tmp_path_factory.mktemp("monitoring")
    make_synthetic(
        directory / "data", SyntheticSpec(rows=ROWS, test_rows=1_000, distinct_ids=5_200)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEETPS_TEST_MARK", uuid.uuid4().hex)
        job = LiveJob(directory, directory / "data")
        try:
            wait_until(lambda: bool(job.status().checkpoint.number), START_SECONDS, "a checkpoint")
            yield job
        finally:
            job.program.popen.terminate()
            try:
                job.program.popen.wait(2 * END_SECONDS)
            finally:
                kill_everything()


def needs(program: str, package: str) -> str:
    """The path of a program; the test is skipped where it isn't installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(
            f"{program} is missing: apt-get install {package} (scripts/install_monitoring.sh)"
        )
    return found


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Where pictures are kept for people to look at."""
    path = Path(os.environ.get("TEST_ARTIFACTS", ARTIFACTS))
    path.mkdir(parents=True, exist_ok=True)
    return path
