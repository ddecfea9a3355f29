"""One real job for all tests here."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from isolation import MARK
from live_job import ARTIFACTS, ROWS, LiveJob
from running_job import START_SECONDS, kill_everything, wait_until

from fleetps.data.synthetic import SyntheticSpec, make_synthetic


@pytest.fixture(scope="session")
def live_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveJob]:
    """It trains until the tests are over, has evaluated an epoch and saved a checkpoint."""
    directory = tmp_path_factory.mktemp("monitoring")
    make_synthetic(
        directory / "data", SyntheticSpec(rows=ROWS, test_rows=1_000, distinct_ids=5_200)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, uuid.uuid4().hex)
        job = LiveJob(directory, directory / "data")
        try:
            wait_until(lambda: bool(job.status().checkpoint.number), START_SECONDS, "a checkpoint")
            yield job
        finally:
            kill_everything()


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Where pictures are kept for people to look at."""
    path = Path(os.environ.get("TEST_ARTIFACTS", ARTIFACTS))
    path.mkdir(parents=True, exist_ok=True)
    return path
