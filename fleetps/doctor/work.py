"""A job's data, model, memory and output."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from fleet_config.job import Job
from fleet_config.tables import bytes_per_row
from fleetps.data.dataset import DATASET_FILE, Dataset, load_dataset
from fleetps.data.pipe import DamagedFile
from fleetps.doctor.finding import Finding, fail, failing, ok, warn
from fleetps.doctor.probe import Probe
from fleetps.doctor.rows import first_mistake

_ROWS_LOOKED_AT = 1000
_MB = 1 << 20
# Measured with few rows and small tasks, agent included, in MB.
SERVER_MB, WORKER_MB = 350, 500
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def job_findings(job: Job, paddle: Probe, *, whole_cluster: bool) -> Iterator[Finding]:
    """Whether the job could run; `whole_cluster`: all of it on this machine."""
    data = _data(job)
    yield from data
    if not paddle.problem:
        yield _model(job, paddle)
    ids = distinct_ids(job)
    if ids is not None:
        yield _memory(job, ids, whole_cluster=whole_cluster)
    yield _output(job)


def distinct_ids(job: Job) -> int | None:
    """How many rows the tables will have, where the data set is there or can be made."""
    findings: list[Finding] = []
    with failing("data", findings):
        if not _to_be_made(job):
            return load_dataset(job.data.path).distinct_ids
    return job.data.synthetic.distinct_ids if job.data.synthetic else None


def table_bytes(job: Job, ids: int) -> int:
    """The memory of all tables over all servers."""
    return sum(ids * bytes_per_row(table.dim, table.rule) for table in job.tables.values())


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
        yield ok("data", f"{name}: {split.rows:,} rows in {len(split.shards)} shards")


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


def _memory(job: Job, ids: int, *, whole_cluster: bool) -> Finding:
    servers, workers = (job.cluster.servers, job.cluster.workers) if whole_cluster else (1, 0)
    tables = table_bytes(job, ids) / job.cluster.servers
    needed = servers * (SERVER_MB * _MB + tables) + workers * WORKER_MB * _MB
    available = available_memory()
    says = (
        f"about {needed / _MB:,.0f} MB needed here ({tables / _MB:,.0f} MB of table rows in each "
        f"of {job.cluster.servers} servers), {available / _MB:,.0f} MB available"
    )
    if needed > available:
        return fail("memory", says, "use more servers on more machines, or a smaller dim")
    if needed > 0.8 * available:
        return warn("memory", says)
    return ok("memory", says)


def available_memory() -> int:
    """What this machine, or the container's limit, still has."""
    available = int(psutil.virtual_memory().available)
    for file in _CGROUP_LIMITS:
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            return min(available, int(text))
    return available


def _output(job: Job) -> Finding:
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
