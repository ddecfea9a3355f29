"""`fleetps doctor --dry-run`: who would do what, and nothing is started."""

from collections.abc import Iterator

from fleet_config.errors import FleetError
from fleet_config.job import Job
from fleet_config.modes import SyncMode
from fleet_config.roles import Role
from fleet_config.section import AUTO
from fleetps.coordinator.tasks import auto_task_rows
from fleetps.data.dataset import load_dataset
from fleetps.doctor.network import described
from fleetps.doctor.work import table_lines
from fleetps.memory import distinct_ids

_ON_ONE_MACHINE = "127.0.0.1, port chosen at the start"


def plan(config: str, job: Job, role: Role) -> list[str]:
    """The lines that say it."""
    sections = (
        ("this process", [described(role)]),
        ("members", list(_members(job, role))),
        ("work", list(_work(job))),
        ("tables", list(_tables(job))),
        ("start it with", list(_commands(config, job, role))),
    )
    return [
        line for title, lines in sections for line in (f"{title}:", *(f"  {one}" for one in lines))
    ]


def _members(job: Job, role: Role) -> Iterator[str]:
    dynamic = f"registers with {role.coordinator}" if role.coordinator else _ON_ONE_MACHINE
    coordinator = role.coordinator or _ON_ONE_MACHINE
    beside = ", started by server 0" if role.coordinator_beside_server_0 else ""
    yield f"coordinator  {coordinator}{beside}"
    for rank in range(len(role.servers) or job.cluster.servers):
        yield f"server {rank}     {role.servers[rank] if role.servers else dynamic}"
    for rank in range(role.worker_count or job.cluster.workers):
        address = role.workers[rank] if role.workers else dynamic
        yield f"worker {rank}     {address}, {job.cluster.threads} threads"


def _work(job: Job) -> Iterator[str]:
    yield (
        f"model {job.model.name}, optimizer {job.optimizer.name}, {', then '.join(_stages(job))}"
    )
    rows = _train_rows(job)
    if rows is None:
        yield f"data {job.data.path}: not there yet, so its tasks are not known"
        return
    size = job.data.task_rows
    task = auto_task_rows(rows, job.cluster.workers) if size == AUTO else size
    yield (
        f"{rows:,} training rows in {-(-rows // task):,} tasks of about {min(task, rows):,}, "
        f"{-(-rows // job.data.batch_size):,} batches of {job.data.batch_size} per epoch"
    )


def _stages(job: Job) -> Iterator[str]:
    for stage in job.stages:
        strict = "strict " if isinstance(stage.mode, SyncMode) and stage.mode.strict else ""
        plural = "s" if stage.epochs != 1 else ""
        yield f"{stage.epochs} epoch{plural} {strict}{stage.mode.name}"


def _train_rows(job: Job) -> int | None:
    try:
        return load_dataset(job.data.path).split("train").rows
    except FleetError:
        return job.data.synthetic.rows if job.data.synthetic else None


def _tables(job: Job) -> Iterator[str]:
    ids = distinct_ids(job)
    for name, table in job.tables.items():
        shards = job.table_shards(name)
        yield (
            f"{name}: rows of {table.dim}, rule {table.rule.name}, {shards} shards, "
            f"{shards / job.cluster.servers:g} on each server"
        )
    if ids is not None:
        yield from table_lines(job, ids)


def _commands(config: str, job: Job, role: Role) -> Iterator[str]:
    servers, workers = job.cluster.servers, job.cluster.workers
    coordinator = role.coordinator or "HOST:PORT"
    train = f"python train.py --config {config}"
    yield f"fleetps launch --config {config}    (all on this machine)"
    yield f"fleetrun --server_num={servers} --trainer_num={workers} train.py --config {config}"
    yield f"ROLE=COORDINATOR COORDINATOR={coordinator} {train}    (once)"
    yield f"ROLE=SERVER COORDINATOR={coordinator} {train}    ({servers} times)"
    yield f"ROLE=WORKER COORDINATOR={coordinator} {train}    ({workers} times)"
    yield f"{train}    (locally, without servers)"
