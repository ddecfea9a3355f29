"""Real servers and several real workers around a coordinator in this process, over HTTP."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from children import SECONDS, cluster

from fleet_config.job import Job
from fleetps.coordinator.app import make_app
from fleetps.coordinator.messages import Rendezvous
from fleetps.coordinator.reports import Status
from fleetps.coordinator.service import JobService
from fleetps.data.dataset import load_dataset

NOBODY: Mapping[Any, Any] = {}


@dataclass(frozen=True)
class Together:
    """What the processes of a job left."""

    directory: Path
    status: Status

    def dense(self, worker: int, moment: str = "end") -> dict[str, np.ndarray]:
        """Dense values and state of a worker; "servers-..." is what worker 0 pulled from them."""
        with np.load(self.directory / f"worker-{worker}" / f"{moment}.npz") as values:
            return dict(values)

    def lines(self, moment: str) -> list[bytes]:
        """The rows of the table as text, sorted."""
        files = (self.directory / "worker-0" / moment / "000").glob("part-*.gz")
        return sorted(line for f in files for line in gzip.decompress(f.read_bytes()).splitlines())

    def rows(self, dim: int) -> dict[int, np.ndarray]:
        """id -> values of the row, over all servers."""
        found = {}
        for line in self.lines("end"):
            key, _slot, _unseen, _delta, _show, _click, *values = line.decode().split()
            found[int(key)] = np.array([float(value) for value in values[:dim]])
        return found

    def steps(self, worker: int) -> np.ndarray:
        """The times (one clock for all) at which a worker's batches ended."""
        return np.loadtxt(self.directory / f"worker-{worker}" / "steps.txt")


class Restoring(JobService):
    """Begins with a checkpoint."""

    restore = ""

    def rendezvous(self, instance: str) -> Rendezvous:
        return super().rendezvous(instance).model_copy(update={"restore": self.restore})


def run_together(
    job: Job,
    directory: Path,
    slow: Mapping[int, float] = NOBODY,
    save: Path | None = None,
    restore: Path | None = None,
) -> Together:
    """Run a job to its end; fails unless every worker ends with 0.

    `slow`: seconds that each batch of a worker takes longer. `save`: where worker 0 leaves a
    checkpoint at the end. `restore`: a checkpoint to begin with.
    """
    own = job.job.model_copy(update={"output": directory / "runs"})
    service = Restoring(job.model_copy(update={"job": own}), load_dataset(job.data.path))
    service.restore = str(restore or "")
    with ExitStack() as stack:
        stack.callback(service.close)
        coordinator = stack.enter_context(_served(service))
        servers = stack.enter_context(cluster(job, directory))
        for rank, endpoint in enumerate(servers.endpoints):
            service.register("server", f"server-{rank}", endpoint, rank, job.digest())
            service.heartbeat(f"server-{rank}", "serving")
        for rank in range(job.cluster.workers):
            service.register("worker", f"worker-{rank}", "127.0.0.1", rank, job.digest())
        workers = []
        for rank in range(job.cluster.workers):
            env = {
                "FLEETPS_COORDINATOR": coordinator,
                "FLEETPS_INSTANCE": f"worker-{rank}",
                "FLEETPS_PROBE_SLOW": str(slow.get(rank, 0.0)),
            }
            env |= {"FLEETPS_PROBE_SAVE": str(save)} if save else {}
            workers.append(servers.worker(rank, "together_probe:work", **env))
        for worker in workers:
            worker.ends()
        return Together(directory, service.status())


@contextmanager
def _served(service: JobService) -> Iterator[str]:
    """The service over HTTP on a free port of loopback; nobody here sends heartbeats."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(service, None), log_level="warning"))
    thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(SECONDS)
