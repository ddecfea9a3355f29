"""Deltas of what real servers hold: a chain is a full save of that moment, and can be loaded."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest
from probe_job import Left, run_probe

from fleet_config.job import Job
from fleetps.checkpoint.chain import chain_of, verify_chain
from fleetps.checkpoint.finish import Saved, finish
from fleetps.checkpoint.reshard import loadable_tables
from fleetps.checkpoint.store import Checkpoints
from fleetps.checkpoint.tidy import tidy
from fleetps.data.dataset import load_dataset
from fleetps.data.synthetic import SyntheticSpec, make_synthetic

pytestmark = pytest.mark.cluster

# By table id, the order in which Paddle counts them: that of their names.
NAMES = ("evicted", "plain")
TASKS = 5  # in each of two epochs


def job_with(servers: int, shards: int, data: Path, output: Path) -> Job:
    """Between its two epochs one table loses its rare rows, most of which come back."""
    evicted = {
        "dim": 4,
        "shards": shards,
        "rule": {"name": "adam"},
        "admission": {"threshold": 4.0, "show_weight": 1.0},
        "eviction": {"decay": 1.0, "below": 6.0},
    }
    return Job.model_validate(
        {
            "job": {"name": "deltas", "output": str(output), "epochs": 2},
            "cluster": {"servers": servers},
            "data": {"path": str(data), "batch_size": 100, "task_rows": 500},
            "model": {"name": "weighted_gradient"},
            "tables": {"evicted": evicted, "plain": {"dim": 3, "shards": shards}},
            "evaluate": {"every_epochs": 0},
        }
    )


def saved_by_engine(tables: Path) -> list[list[bytes]]:
    """The lines of both tables, sorted."""
    return [
        sorted(
            line
            for file in (tables / f"{table:03}").iterdir()
            for line in gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        )
        for table in range(len(NAMES))
    ]


def commit(left: Left, moment: str, number: int, job: Job, store: Checkpoints) -> None:
    partial = store.begin(number)
    shutil.copytree(left.directory / moment, partial / "tables")
    shutil.copy(left.directory / f"{moment}.npz", partial / "dense.npz")
    np.savez(partial / "optimizer-0.npz", moment=np.ones(3, np.float32))
    saved = Saved(
        number=number,
        generation=1,
        ranks=[0],
        ids={name: table for table, name in enumerate(NAMES)},
        rows={name: len(left.rows(moment, table)) for table, name in enumerate(NAMES)},
        progress={},
        paddle="2.6.2",
    )
    finish(partial, job, load_dataset(job.data.path), saved)


def test_a_chain_is_what_the_servers_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"  # of which a task has a part of the ids
    make_synthetic(data, SyntheticSpec(rows=500 * TASKS, test_rows=1, distinct_ids=20_000))
    job = job_with(2, 4, data, tmp_path)
    with monkeypatch.context() as patched:
        patched.setenv("AFTER_TASKS", "1")
        left = run_probe(job, tmp_path / "first")
    store = Checkpoints(tmp_path / "checkpoints")
    moments = [f"task-{number}" for number in range(2 * TASKS)]
    for number, moment in enumerate(moments, start=1):
        commit(left, moment, number, job, store)
        tidy(store, full_every=100)

    found = store.list()[::-1]
    assert [one.manifest.kind for one in found] == ["full", *["delta"] * (2 * TASKS - 2), "full"]
    for one, moment in zip(found, moments, strict=True):
        verify_chain(one)
        whole = saved_by_engine(left.directory / moment)
        chain = chain_of(one)
        for name, lines in zip(NAMES, whole, strict=True):
            text = b"".join(chain.table(name))
            assert sorted(text.splitlines(keepends=True)) == lines
    # What the eviction after the first epoch deleted, unless it came back in the task after it.
    changes = [one.manifest.tables["evicted"].changes for one in found[1:-1]]
    removed = [change.removed for change in changes if change]
    assert removed[TASKS - 1] > 100
    assert sum(removed) == removed[TASKS - 1]
    sizes = [sum(table.bytes for table in one.manifest.tables.values()) for one in found]
    assert sizes[1] < sizes[-1]

    # The last delta, in the shards of three servers, and what these hold then.
    third = job_with(3, 6, data, tmp_path)
    with loadable_tables(found[-2], third) as tables:
        monkeypatch.setenv("LOAD", str(tables))
        loaded = run_probe(third, tmp_path / "third")
    assert saved_by_engine(loaded.directory / "start") == saved_by_engine(
        left.directory / moments[-2]
    )
