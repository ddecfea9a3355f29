"""docs/environment.md and the code name the same variables."""

from __future__ import annotations

import re
from pathlib import Path

from fleet_config.cpu import MKL_VARIABLE
from fleet_config.environment import VARIABLES

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| `([A-Z][A-Z0-9_]+)` \|", re.MULTILINE)
_OURS = re.compile(r"[\"'](FLEETPS_[A-Z_]+)[\"']")


def test_every_variable_is_documented_and_every_documented_one_is_read() -> None:
    documented = _ROW.findall((ROOT / "docs" / "environment.md").read_text(encoding="utf-8"))
    sources = (file for part in ("fleet_config", "fleetps") for file in (ROOT / part).rglob("*.py"))
    own = {name for file in sources for name in _OURS.findall(file.read_text(encoding="utf-8"))}
    assert len(documented) == len(set(documented))
    assert set(documented) == {*VARIABLES, *own, MKL_VARIABLE, "OMP_NUM_THREADS"}
