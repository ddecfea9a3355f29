"""Which checkpoint a generation begins with.

Its files are read here without the coordinator's lock: that may take a minute for a large one, and
everybody else is answered meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_config.errors import UserError
from fleetps.checkpoint.store import open_checkpoint, verify_links
from fleetps.coordinator.schema import CheckpointRow


@dataclass(frozen=True)
class Choice:
    """`row` None: there is none. `damaged`: what is wrong with newer ones, newest first."""

    row: CheckpointRow | None
    damaged: Sequence[str]


def choose(rows: Sequence[CheckpointRow]) -> Choice:
    """The first of `rows`, newest first, whose files are as they were written."""
    damaged: list[str] = []
    for row in rows:
        if not (why := fault(row.path)):
            return Choice(row, damaged)
        damaged.append(why)
    return Choice(None, damaged)


def fault(path: Path) -> str:
    """Why nobody can go on from this checkpoint; "": its files are as they were written."""
    try:
        verify_links(open_checkpoint(path))
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"{path}: can't be read: {error.strerror}"
    return ""


def none_left(newest: str) -> str:
    """The refusal to begin anew, and so remove them in the end, because none can be read just now.

    newest: what is wrong with the newest.
    """
    return (
        f"no checkpoint can be read; the newest: {newest}; bring it back and start the job again, "
        "or begin anew (checkpoint.resume: never)"
    )


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
