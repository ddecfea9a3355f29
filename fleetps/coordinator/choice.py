"""Which checkpoint a generation begins with.

Its files are read here without the coordinator's lock: that may take a minute for a large one, and
everybody else is answered meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fleet_config.errors import UserError
from fleetps.checkpoint.store import open_checkpoint, verify_links
from fleetps.coordinator.schema import CheckpointRow


@dataclass(frozen=True)
class Choice:
    """`row` None: there is none. `damaged`: what is wrong with those that are newer."""

    row: CheckpointRow | None
    damaged: Sequence[str]


def choose(rows: Sequence[CheckpointRow]) -> Choice:
    """The first of `rows`, newest first, whose files are as they were written."""
    damaged = []
    for row in rows:
        try:
            verify_links(open_checkpoint(row.path))
        except UserError as error:
            damaged.append(str(error))
        except OSError as error:
            damaged.append(f"{row.path}: can't be read: {error.strerror}")
        else:
            return Choice(row, damaged)
    return Choice(None, damaged)


@dataclass(frozen=True)
class Cause:
    """Why a generation begins. Kept in the store while the checkpoint is being chosen."""

    who: str
    reason: str

    def to_json(self) -> str:
        return json.dumps([self.who, self.reason])

    @classmethod
    def from_json(cls, text: str) -> Cause:
        return cls(*json.loads(text))
