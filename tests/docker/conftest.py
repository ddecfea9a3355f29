"""An engine, the images and the data that all tests of containers share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine import Engine, find_or_start
from images import build
from stack import Stack

from fleetps.data.synthetic import SyntheticSpec, make_synthetic

ROWS, TEST_ROWS, IDS = 200_000, 40_000, 26_000


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine that is there, or one of our own, which ends with the tests."""
    with find_or_start() as found:
        if isinstance(found, str):
            pytest.skip(found)
        yield found


@pytest.fixture(scope="session")
def images(engine: Engine) -> dict[str, str]:
    """By what they are for."""
    built = build(engine)
    if isinstance(built, str):
        pytest.skip(built)
    return built


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """A directory that the containers' user can reach; pytest's own are for their owner alone."""
    with tempfile.TemporaryDirectory(prefix="fleetps-test-") as made:
        path = Path(made)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="session")
def shared_data(shared: Path) -> Path:
    """200,000 training and 40,000 test rows, as the job file of `Stack` describes them."""
    spec = SyntheticSpec(
        rows=ROWS, test_rows=TEST_ROWS, seed=1, distinct_ids=IDS, zipf=1.1, click_rate=0.25
    )
    make_synthetic(shared / "data" / "quickstart", spec)
    for file in (shared / "data").rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
    return shared / "data"


@pytest.fixture
def stack(
    request: pytest.FixtureRequest,
    engine: Engine,
    images: dict[str, str],
    shared: Path,
    shared_data: Path,
) -> Iterator[Stack]:
    """A project of Compose, of which nothing is left after the test."""
    made = Stack(engine, request.node.name, shared_data, shared / request.node.name)
    try:
        yield made
    finally:
        made.remove()
