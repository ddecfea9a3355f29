"""What the tests of manifests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from manifests import ROOT


@pytest.fixture(scope="session")
def job_file() -> Path:
    return ROOT / "conf" / "quickstart.yaml"
