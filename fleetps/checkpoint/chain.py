"""The rows of a checkpoint, also of one that holds only what changed since another.

A delta has in its part files the rows that the checkpoint before hasn't, or has otherwise, and in
`removed-<shard>.gz`, where there are any, the ids that only the one before has, a line for each. So
an id's row is the line of the newest link that tells of it. A delta also says what comes out,
`Content`, and whatever is read through here is compared with that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from fleetps.checkpoint.format import DamagedCheckpoint, Manifest, TableRecord
from fleetps.checkpoint.rows import part_names, read_lines
from fleetps.checkpoint.store import Checkpoint
from fleetps.checkpoint.verify import verify

Ids = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Digests = npt.NDArray[np.uint64]  # [rows, 2]: XXH3-128 of each line


class Content:
    """Rows and a checksum of them in which their order doesn't matter.

    The checksum is the sum of all lines' XXH3-128, each half for itself modulo 2^64.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._sum = np.zeros(2, np.uint64)

    def add(self, digests: Digests) -> None:
        self.rows += len(digests)
        self._sum += digests.sum(axis=0, dtype=np.uint64)

    def __str__(self) -> str:
        return "".join(f"{int(half):016x}" for half in self._sum)


@dataclass(frozen=True)
class Chain:
    """A checkpoint and those that it builds on.

    Attributes:
        links: newest first; the last is full.
    """

    links: Sequence[Checkpoint]

    @property
    def manifest(self) -> Manifest:
        """Of the checkpoint itself."""
        return self.links[0].manifest

    def table(self, name: str) -> Iterator[bytes]:
        """All rows of a table in blocks of whole lines.

        Raises:
            DamagedCheckpoint: a file can't be read, or the rows are not those that the table had.
        """
        record = self.manifest.tables[name]
        content = Content()
        for shard in range(record.shards):
            for block in self.shard(name, shard):
                if record.changes:
                    content.add(digests_of(block.splitlines(keepends=True)))
                yield block
        self._check(name, record, content)

    def _check(self, name: str, record: TableRecord, content: Content) -> None:
        if record.changes and (content.rows, str(content)) != (record.rows, record.changes.content):
            raise DamagedCheckpoint(
                f"{self.links[0].path}: with what it builds on, "
                f"{self.links[-1].name} and {len(self.links) - 1} deltas, come {content.rows:,} "
                f"rows of table {name} that are not the {record.rows:,} which it had"
            )

    def shard(self, name: str, shard: int) -> Iterator[bytes]:
        """The rows of a shard in blocks of whole lines; not compared with anything.

        Raises:
            DamagedCheckpoint: a file can't be read.
        """
        told = np.empty(0, np.uint64)  # ids of which a newer link tells, sorted
        for link in self.links:
            found = [told]
            for block in _part(link, name, shard):
                if link is self.links[-1] and not len(told):
                    yield block
                    continue
                lines = block.splitlines(keepends=True)
                ids = ids_of(lines)
                found.append(ids)
                if block := b"".join(itertools.compress(lines, ~within(told, ids))):
                    yield block
            found += [ids_of(block.splitlines()) for block in _removed(link, name, shard)]
            told = np.unique(np.concatenate(found))


def chain_of(checkpoint: Checkpoint) -> Chain:
    """The chain that ends with a checkpoint, which may consist of it alone.

    Raises:
        DamagedCheckpoint: one that it builds on is missing.
    """
    return Chain(checkpoint.links())


def verify_chain(checkpoint: Checkpoint) -> None:
    """Read every file of a checkpoint and of those that it builds on, and count what comes out.

    Raises:
        DamagedCheckpoint: naming the first file that is wrong.
    """
    chain = chain_of(checkpoint)
    for link in reversed(chain.links):
        verify(link.path, link.manifest, deep=True)
    for name, record in checkpoint.manifest.tables.items():
        if record.changes:
            for _ in chain.table(name):
                pass


def removed_name(shard: int) -> str:
    """The file of a delta with the ids of a shard that are no more."""
    return f"removed-{shard:05}.gz"


def ids_of(lines: Sequence[bytes]) -> Ids:
    """The id with which each line begins."""
    return np.fromiter((int(line.split(b" ", 1)[0]) for line in lines), np.uint64, len(lines))


def digests_of(lines: Sequence[bytes]) -> Digests:
    """Two lines are the same if these are."""
    digests = b"".join(map(xxhash.xxh3_128_digest, lines))
    return np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, 2)


def within(ordered: Ids, ids: Ids) -> Mask:
    """Which of `ids` are among the sorted ones."""
    if not len(ordered):
        return np.zeros(len(ids), np.bool_)
    places = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
    found: Mask = ordered[places] == ids
    return found


def _part(link: Checkpoint, name: str, shard: int) -> Iterator[bytes]:
    record = link.manifest.tables[name]
    file = part_names(link.manifest.servers, record.shards)[shard]
    return read_lines(link.path / record.directory / file)


def _removed(link: Checkpoint, name: str, shard: int) -> Iterator[bytes]:
    file: Path = link.path / link.manifest.tables[name].directory / removed_name(shard)
    if file.relative_to(link.path).as_posix() in link.manifest.files:
        yield from read_lines(file)
