"""A job's data, model, memory and output."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from fleet_config.job import Job
from fleet_config.tables import local_bytes
from fleetps import memory
from fleetps.data.dataset import DATASET_FILE, Dataset, load_dataset
from fleetps.data.pipe import DamagedFile
from fleetps.doctor.finding import Finding, fail, failing, ok, warn
from fleetps.doctor.probe import Probe
from fleetps.doctor.rows import first_mistake
from fleetps.system.memory import available_memory
from fleetps.system.rundir import RunDirectory

_ROWS_LOOKED_AT = 1000


@dataclass(frozen=True)
class Here:
    """How many processes of a job this machine is for."""

    servers: int
    workers: int


def job_findings(job: Job, paddle: Probe, here: Here) -> Iterator[Finding]:
    """Whether the job could run."""
    data = _data(job)
    yield from data
    if not paddle.problem:
        yield _model(job, paddle)
    ids = memory.distinct_ids(job)
    if ids is not None:
        yield from _tables(job, ids)
        yield from _memory(job, ids, here)
    yield _output(job)


def _to_be_made(job: Job) -> bool:
    return job.data.synthetic is not None and not job.data.path.exists()


def _data(job: Job) -> list[Finding]:
    if _to_be_made(job):
        return [ok("data", f"{job.data.path} is not there yet; it will be made")]
    findings: list[Finding] = []
    with failing("data", findings):
        dataset = load_dataset(job.data.path)
        if job.evaluate.every_epochs:
            dataset.split(job.evaluate.split)
        findings += _rows(dataset)
        findings += _strangers(dataset)
    return findings


def _rows(dataset: Dataset) -> Iterator[Finding]:
    for name, split in dataset.splits.items():
        for shard in split.shards[:1]:
            rows = min(shard.rows, _ROWS_LOOKED_AT)
            try:
                mistake = first_mistake(dataset.shard_path(shard), rows, dataset.columns)
            except DamagedFile as error:
                mistake = str(error)
            if mistake:
                yield fail("data", mistake, "convert the data again")
                return
        yield ok("data", f"{name}: {split}")


def _strangers(dataset: Dataset) -> Iterator[Finding]:
    named = {shard.file for shard in dataset.shards()} | {DATASET_FILE}
    others = sorted(entry.name for entry in dataset.path.iterdir() if entry.name not in named)
    if others:
        listed = ", ".join(others[:3]) + (" ..." if len(others) > 3 else "")
        yield ok("data", f"not read, because {DATASET_FILE} doesn't name them: {listed}")


def _model(job: Job, paddle: Probe) -> Finding:
    if paddle.model_problem:
        return fail("model", paddle.model_problem)
    return ok("model", job.model.name)


def _tables(job: Job, ids: int) -> Iterator[Finding]:
    for line in table_lines(job, ids):
        yield ok("tables", line)


def table_lines(job: Job, ids: int) -> Iterator[str]:
    """What each table is expected to take on each server and, in geo mode, on each worker."""
    servers = job.cluster.servers
    server_rows = memory.server_rows(job, ids)
    for name, size in memory.row_bytes(job).items():
        yield (
            f"{name}: about {size} bytes for each of {server_rows:,} rows, "
            f"{_mb(size * server_rows / servers)} on each of {servers} server{'s' * (servers > 1)}"
        )
    rows = memory.worker_rows(job, ids)
    for name, table in job.tables.items() if rows else ():
        yield (
            f"{name}: {local_bytes(table, 1)} bytes for each of {rows:,} rows, "
            f"{_mb(local_bytes(table, rows))} on each worker"
        )


def _mb(size: float) -> str:
    return f"{size / memory.MB:,.1f} MB" if size < 10 * memory.MB else f"{size / memory.MB:,.0f} MB"


def _memory(job: Job, ids: int, here: Here) -> Iterator[Finding]:
    refused: list[Finding] = []
    with failing("memory", refused):
        if here.workers:
            memory.check_worker_memory(job, here.workers)
    if refused:
        yield from refused
        return
    needed = here.servers * (memory.SERVER_BYTES + memory.server_table_bytes(job, ids))
    needed += here.workers * (memory.WORKER_BYTES + memory.worker_table_bytes(job, ids))
    available = available_memory()
    says = f"about {_mb(needed)} needed here, {_mb(available)} available"
    if needed > available:
        yield fail("memory", says, "use more servers on more machines, or a smaller dim")
    elif needed > 0.8 * available:
        yield warn("memory", says)
    else:
        yield ok("memory", says)


def _output(job: Job) -> Finding:
    if obstacle := RunDirectory(job.run_dir).obstacle():
        return fail("output", f"{job.run_dir} can't be created: {obstacle}")
    existing = job.run_dir
    while not existing.exists():
        existing = existing.parent
    try:
        # Trying is the only sure way: root may do what the permissions forbid, but not in /proc.
        with tempfile.TemporaryFile(dir=existing):
            return ok("output", f"{job.run_dir}")
    except OSError as error:
        return fail(
            "output",
            f"{job.run_dir} can't be written: {error.strerror}",
            "set job.output to a directory that can be",
        )
