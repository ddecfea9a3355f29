"""Rows spread evenly over servers, whatever the raw values look like."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from fleet_config.tables import table_shards
from fleetps.data.ids import hash_ids

IDS = 1_000_000


@functools.cache
def realistic_ids() -> npt.NDArray[np.int64]:
    """Different ids of four slots whose raw values are anything but evenly spread."""
    random = np.random.default_rng(3)
    slots = {
        "user": np.arange(700_000) * 1000,  # counted up by a database that leaves gaps
        "hour": 1_700_000_000 + np.arange(8_760) * 3600,  # multiples of 3600
        "price": np.arange(20_000) * 5,
        "item": np.unique(random.zipf(1.05, 1_000_000) % (1 << 40)),
    }
    ids = [hash_ids(pa.array(values.astype(str)), slot) for slot, values in slots.items()]
    return np.concatenate(ids)[:IDS]


def server_of(ids: npt.NDArray[np.int64], shards: int, servers: int) -> npt.NDArray[np.int64]:
    """As the engine does it: a shard is id mod shards, and each server has consecutive shards."""
    each = shards // servers if shards % servers == 0 else shards // servers + 1
    return ids % shards // each


@pytest.mark.parametrize("cores", [1, 4, 64])
@pytest.mark.parametrize("servers", [2, 3, 4, 8])
def test_servers_hold_as_many_rows(servers: int, cores: int) -> None:
    ids = realistic_ids()
    assert len(np.unique(ids)) == IDS
    rows = np.bincount(server_of(ids, table_shards(servers, cores), servers), minlength=servers)
    assert np.abs(rows / (IDS / servers) - 1).max() < 0.02


def test_a_number_of_shards_that_is_no_multiple_leaves_a_server_empty() -> None:
    """And so is refused in the job file."""
    assert np.unique(server_of(realistic_ids(), 4, 3)).tolist() == [0, 1]
