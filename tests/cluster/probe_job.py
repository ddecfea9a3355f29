"""Runs servers and one probing worker to their end, and reads what they left."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from children import Child, cluster
from running_job import ROOT

from fleet_config.job import Job


@dataclass(frozen=True)
class Left:
    """What a probing worker left in its directory."""

    directory: Path

    def dense(self, moment: str) -> dict[str, np.ndarray]:
        with np.load(self.directory / f"{moment}.npz") as values:
            return dict(values)

    def rows(self, moment: str, table: int = 0) -> dict[int, list[float]]:
        """A sparse table: id -> unseen_days, delta_score, show, click, then values and state."""
        found = {}
        for file in sorted((self.directory / moment / f"{table:03}").glob("part-*")):
            content = file.read_bytes()
            text = gzip.decompress(content) if file.suffix == ".gz" else content
            for line in text.decode().splitlines():
                key, _slot, *values = line.split()
                found[int(key)] = [float(value) for value in values]
        return found

    def pulled(self, table: str = "embedding") -> list[np.ndarray]:
        """Per batch: what the worker pulled, [rows, slots, dim]."""
        with np.load(self.directory / f"pulled-{table}.npz") as values:
            return [values[name] for name in values.files]

    def rows_by_server(self, moment: str, table: int = 0) -> dict[int, int]:
        """How many rows of a table each server holds."""
        found: dict[int, int] = {}
        for file in (self.directory / moment / f"{table:03}").glob("part-*.gz"):
            server = int(file.name.split("-")[1])
            lines = gzip.decompress(file.read_bytes()).count(b"\n")
            found[server] = found.get(server, 0) + lines
        return found

    def sent(self) -> int:
        """Bytes that the worker wrote, nearly all of them to servers, in the first epoch."""
        return int((self.directory / "sent").read_text())

    def server_dense(self, moment: str) -> np.ndarray:
        """All dense values on the server, in the order of the sorted names, to 6 digits."""
        files = sorted((self.directory / moment / "001").glob("part-*.gz"))
        text = "".join(gzip.decompress(file.read_bytes()).decode() for file in files)
        return np.array([float(line.split()[0]) for line in text.splitlines()])

    def status(self) -> dict[str, Any]:
        return json.loads((self.directory / "status.json").read_text())


def run_probe(job: Job, directory: Path, *, step_by_step: bool = False, shrinks: int = 0) -> Left:
    """The servers of the job and one worker; fails unless it ends well.

    `step_by_step`: each batch's pushes reach the server alone and before the next batch.
    `shrinks`: evictions after the end, as if after so many epochs in which no id was seen.
    """
    with cluster(job, directory) as servers:
        env = {"STEP_BY_STEP": "1" if step_by_step else "", "SHRINKS": str(shrinks)}
        worker = servers.worker(0, "probe:probe", **env)
        worker.ends()
    return Left(worker.place)


def run_local_probe(job: Job, directory: Path) -> Left:
    """The same without servers."""
    child = Child("probe:local_probe", directory / "local", job, {"PYTHONPATH": str(ROOT)})
    try:
        child.ends()
    finally:
        child.kill()
    return Left(child.place)
