"""Which checkpoints a job keeps: the newest, some for ever, and those that these build on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from fleetps.checkpoint.format import Manifest

Bases = Mapping[str, str | None]  # name -> name of the checkpoint that it builds on


class Named(Protocol):
    """A checkpoint, in the job's directory or elsewhere."""

    @property
    def name(self) -> str:
        """Its directory."""

    @property
    def manifest(self) -> Manifest:
        """What it says about itself."""


def to_keep(
    found: Sequence[Named], bases: Bases, keep: int, keep_every: int | None = None
) -> set[str]:
    """The names of those to keep, of all that there are, newest first."""
    wanted = [one.name for one in found[:keep]]
    if keep_every:
        wanted += [one.name for one in found if one.manifest.number % keep_every == 0]
    kept: set[str] = set()
    while wanted:
        name = wanted.pop()
        kept.add(name)
        base = bases.get(name)
        if base is not None and base not in kept:
            wanted.append(base)
    return kept


def base_of_newest(found: Sequence[Named], bases: Bases, full_every: int) -> str | None:
    """On which the newest is to build when it isn't the newest any more; None: it stays full.

    That is the one before, unless `full_every` - 1 in a row are deltas already.
    """
    if len(found) < 2 or found[0].manifest.base is not None:
        return None
    before: str | None = found[1].name
    links = 0
    while before is not None and links < full_every:
        links, before = links + 1, bases.get(before)
    return found[1].name if links < full_every else None
