"""Job files in a directory of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.chdir(tmp_path)

    def to_file(text: str) -> str:
        Path("job.yaml").write_text(text, encoding="utf-8")
        return "job.yaml"

    return to_file
