"""How several members, or keys of a job file, are named in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetps.coordinator.members import Member, Members

_MOST_NAMED = 8
_MOST_KEYS = 5


def names_of(members: Sequence[Member]) -> str:
    """`worker 0, worker 1`; "": nobody."""
    return listed([member.name for member in members])


def listed(names: Sequence[str]) -> str:
    """The first few of them, and how many there are more."""
    shown = ", ".join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def cut_off(members: Members) -> list[tuple[Member, str]]:
    """Workers that can't reach a server, and which one."""
    servers = {server.rank: server for server in members.live("server")}
    pairs = [(worker, servers.get(worker.unreachable)) for worker in members.live("worker")]
    return [(worker, f"can't reach {lost.name} ({lost.address})") for worker, lost in pairs if lost]


def another_job(
    role: str, address: str, ours: Mapping[str, Any], theirs: Mapping[str, Any] | None
) -> str:
    """The refusal of a process that was started with another job file: what differs, if known."""
    keys = sorted(
        key for key in {*ours, *(theirs or ())} if ours.get(key) != (theirs or ours).get(key)
    )
    named = [f"{key} is {(theirs or {}).get(key)!r} there, {ours.get(key)!r} here" for key in keys]
    what = "; ".join(named[:_MOST_KEYS]) or "their digests differ"
    return (
        f"the {role} at {address} was started with another job than the coordinator ({what}); "
        "give all processes of a job the same job file and --set options"
    )
