"""How several members are named in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from fleetps.coordinator.members import Member

_MOST_NAMED = 8


def names_of(members: Sequence[Member]) -> str:
    """`worker 0, worker 1`; "": nobody."""
    return listed([member.name for member in members])


def listed(names: Sequence[str]) -> str:
    """The first few of them, and how many there are more."""
    shown = ", ".join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"
