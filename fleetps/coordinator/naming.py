"""How several members are named in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from fleetps.coordinator.members import Member, Members

_MOST_NAMED = 8


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
