"""What differs between two checkpoints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetps.checkpoint.chain import Chain, chain_of
from fleetps.checkpoint.rows import layout_of
from fleetps.checkpoint.store import Checkpoint
from fleetps.checkpoint.values import Rows, parse_rows


@dataclass
class TableDifference:
    """Numbers of rows.

    Attributes:
        only_a, only_b: whose id the other checkpoint doesn't have.
        same: alike in every number.
        changed: with other values.
        other: with the same values but other shows, clicks, age or state of the rule.
        largest: difference of a value, of the row with the id `of`.
    """

    only_a: int = 0
    only_b: int = 0
    same: int = 0
    changed: int = 0
    other: int = 0
    largest: float = 0.0
    of: int = 0


def compare_table(a: Checkpoint, b: Checkpoint, name: str) -> TableDifference:
    """Compare a table of the same dim and rule; numbers of shards and servers may differ.

    Raises:
        DamagedCheckpoint: a part file can't be read.
    """
    record_a, record_b = a.manifest.tables[name], b.manifest.tables[name]
    # Ids that are alike modulo all shards of one are alike modulo any divisor of their number.
    groups = math.gcd(record_a.shards, record_b.shards)
    chains = chain_of(a), chain_of(b)
    found = TableDifference()
    for group in range(groups):
        left, right = (_group(chain, name, group, groups) for chain in chains)
        _compare(left, right, found)
    return found


def _group(chain: Chain, name: str, group: int, groups: int) -> Rows:
    record = chain.manifest.tables[name]
    shards = range(group, record.shards, groups)
    blocks = itertools.chain.from_iterable(chain.shard(name, shard) for shard in shards)
    return parse_rows(blocks, layout_of(record))


def _compare(a: Rows, b: Rows, found: TableDifference) -> None:
    common, in_a, in_b = np.intersect1d(a.ids, b.ids, assume_unique=True, return_indices=True)
    found.only_a += len(a.ids) - len(common)
    found.only_b += len(b.ids) - len(common)
    if not len(common):
        return
    change = np.abs(a.values()[in_a] - b.values()[in_b]).max(axis=1)
    left, right = a.numbers[in_a], b.numbers[in_b]
    alike = ((left == right) | (np.isnan(left) & np.isnan(right))).all(axis=1)
    changed = int((change > 0).sum())
    found.changed += changed
    found.same += int(alike.sum())
    found.other += len(common) - changed - int((alike & (change == 0)).sum())
    place = int(change.argmax())
    if change[place] > found.largest:
        found.largest, found.of = float(change[place]), int(common[place])


def compare_dense(a: Checkpoint, b: Checkpoint) -> Iterator[tuple[str, str]]:
    """For each dense parameter that isn't the same: its name and what differs."""
    with np.load(a.dense) as left, np.load(b.dense) as right:
        for name in dict.fromkeys([*left.files, *right.files]):
            if name not in left.files or name not in right.files:
                yield name, f"only in {'A' if name in left.files else 'B'}"
            elif sentence := _difference(left[name], right[name]):
                yield name, sentence


def _difference(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> str:
    if a.shape != b.shape:
        return f"of shape {list(a.shape)} in A, {list(b.shape)} in B"
    if np.array_equal(a, b):
        return ""
    return f"largest difference {np.abs(a.astype(float) - b).max():.6g}"
