"""Data for the cluster tests, made once, and which of them run in the same process."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from fleetps.data.synthetic import SyntheticSpec, make_synthetic


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 training and 4,000 test rows."""
    path = tmp_path_factory.mktemp("data") / "small"
    make_synthetic(path, SyntheticSpec(rows=20_000, test_rows=4_000, distinct_ids=5_200))
    return path


class SharingTogether(LoadScopeScheduling):
    """A test goes to the next free process, but all of a file to one if they share something."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if self._shares(file) else nodeid

    @functools.cache  # noqa: B019  there is one scheduler
    def _shares(self, file: str) -> bool:
        return 'scope="module"' in (self.config.rootpath / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharingTogether:
    return SharingTogether(config, log)
