"""Data for the cluster tests, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetps.data.synthetic import SyntheticSpec, make_synthetic


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 training and 4,000 test rows."""
    path = tmp_path_factory.mktemp("data") / "small"
    make_synthetic(path, SyntheticSpec(rows=20_000, test_rows=4_000, distinct_ids=5_200))
    return path
