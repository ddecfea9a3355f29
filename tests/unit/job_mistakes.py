"""The least job file, and what is said about mistakes in one."""

from __future__ import annotations

import pytest

from fleet_config.errors import UserError
from fleet_config.job import load_job

LEAST = "job: {name: x}\ndata: {path: d}\n"


def sentences(write, text: str, *overrides: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        load_job(write(text), overrides)
    return str(caught.value).splitlines()
