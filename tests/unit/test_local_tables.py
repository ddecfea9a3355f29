"""What a process that trains alone can't do is refused before it starts."""

from __future__ import annotations

import pytest

from fleet_config.errors import UserError
from fleet_config.tables import Admission, Eviction, Table
from fleetps.training.local_table import LocalTables


@pytest.mark.parametrize(
    ("table", "setting", "off"),
    [
        (Table(admission=Admission(threshold=2.0)), "admission.threshold", "0"),
        (Table(eviction=Eviction()), "eviction", "null"),
    ],
)
def test_what_only_servers_do(table: Table, setting: str, off: str) -> None:
    with pytest.raises(UserError) as error:
        LocalTables({"embedding": table}, rows=1 << 12)
    assert str(error.value) == (
        f"tables.embedding.{setting} needs servers, and this process trains alone: its tables keep "
        f"all rows; add --set tables.embedding.{setting}={off} or start servers"
    )
