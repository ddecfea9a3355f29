"""Checkpoints of what real servers write, and real servers that load what we have re-sharded."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from probe_job import Left, run_probe
from together import run_together

from fleet_config.job import Job
from fleetps.checkpoint.finish import Saved, finish
from fleetps.checkpoint.reshard import loadable_tables, reshard
from fleetps.checkpoint.store import Checkpoint, Checkpoints, open_checkpoint
from fleetps.checkpoint.verify import verify
from fleetps.data.dataset import load_dataset

pytestmark = pytest.mark.cluster

RULES = ("naive", "adagrad", "std_adagrad", "adam", "shared_adam")
# By table id, the order in which Paddle counts them: that of their names.
NAMES = sorted(f"of_{rule}" for rule in RULES)


def job_with(servers: int, shards: int, data: Path, output: Path) -> Job:
    tables = {
        f"of_{rule}": {"dim": dim, "shards": shards, "rule": {"name": rule}}
        for dim, rule in enumerate(RULES, start=3)
    }
    tables["of_adam"]["admission"] = {"threshold": 6.0}
    return Job.model_validate(
        {
            "job": {"name": "files", "output": str(output)},
            "cluster": {"servers": servers},
            "data": {"path": str(data), "batch_size": 512},
            "model": {"name": "weighted_gradient"},
            "tables": tables,
            "evaluate": {"every_epochs": 0},
        }
    )


def lines(tables: Path) -> dict[str, list[bytes]]:
    """All lines of each table, in an order that doesn't depend on shards."""
    found: dict[str, list[bytes]] = {}
    for directory in sorted(tables.iterdir()):
        text = b"".join(gzip.decompress(file.read_bytes()) for file in sorted(directory.iterdir()))
        dense = directory.name == f"{len(NAMES):03}"
        found[directory.name] = text.splitlines() if dense else sorted(text.splitlines())
    return found


def checkpoint_of(left: Left, job: Job, store: Checkpoints) -> Checkpoint:
    partial = store.begin(store.next_number())
    shutil.copytree(left.directory / "end", partial / "tables")
    shutil.copy(left.directory / "end.npz", partial / "dense.npz")
    np.savez(partial / "optimizer-0.npz", moment=np.ones(3, np.float32))
    rows = {name: len(left.rows("end", table)) for table, name in enumerate(NAMES)}
    saved = Saved(
        number=1,
        generation=1,
        ranks=[0],
        ids={name: table for table, name in enumerate(NAMES)},
        rows=rows,
        progress={"epoch": 0, "rows": 20_000},
        paddle="2.6.2",
    )
    return finish(partial, job, load_dataset(job.data.path), saved)


def test_other_numbers_of_servers_and_shards(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 servers x 8 shards -> 3 x 12 -> 1 x 5: what they load they save again, to the letter."""
    first = job_with(2, 8, small_data, tmp_path)
    left = run_probe(first, tmp_path / "first")
    checkpoint = checkpoint_of(left, first, Checkpoints(tmp_path / "checkpoints"))
    verify(checkpoint.path, checkpoint.manifest, deep=True)
    saved = lines(left.directory / "end")

    second = job_with(3, 12, small_data, tmp_path)
    with loadable_tables(checkpoint, second) as tables:
        monkeypatch.setenv("LOAD", str(tables))
        left = run_probe(second, tmp_path / "second")
    assert lines(left.directory / "start") == saved
    assert lines(left.directory / "end") != saved

    other = tmp_path / "other"
    reshard(checkpoint, other, dict.fromkeys(NAMES, 5), servers=1)
    resharded = open_checkpoint(other)
    verify(other, resharded.manifest, deep=True)
    monkeypatch.setenv("LOAD", str(resharded.tables))
    left = run_probe(job_with(1, 5, small_data, tmp_path), tmp_path / "third")
    assert lines(left.directory / "start") == saved


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 200 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    commands = {name: shutil.which(name) or "" for name in ("mount", "umount")}
    mount = [commands["mount"], "-t", "tmpfs", "-o", "size=200k", "none", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run([commands["umount"], str(place)], check=True)


def test_a_full_disk(small_data: Path, tmp_path: Path, small_disk: Path) -> None:
    """The engine says that it has saved; nothing that looks like a checkpoint is left."""
    store = Checkpoints(small_disk / "checkpoints")
    job = job_with(1, 4, small_data, tmp_path)
    left = run_together(job, tmp_path, save=store.begin(1))
    note = (left.directory / "worker-0" / "saved").read_text()
    assert note.startswith(f"error: {small_disk}/checkpoints/.partial-000001/tables/")
    assert "\n" not in note
    assert list(store.path.iterdir()) == []
