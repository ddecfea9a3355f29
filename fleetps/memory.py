"""What a job's tables take, on the servers and, in geo mode, on each worker."""

from fleet_config.errors import FleetError, UserError
from fleet_config.job import Job
from fleet_config.modes import GeoMode
from fleet_config.section import AUTO
from fleet_config.tables import NaiveRule, bytes_per_row, local_bytes, local_rows
from fleetps.data.dataset import load_dataset
from fleetps.system.memory import available_memory

MB = 1 << 20
# Measured with few rows and small tasks, agent included.
SERVER_BYTES, WORKER_BYTES = 350 * MB, 500 * MB
# Which rows a task needs: a float for each row, twice more while it is set and read.
_MARK_BYTES = 3 * 4
# Fewer would hardly be a table.
_LEAST_ROWS = 1000


def distinct_ids(job: Job) -> int | None:
    """How many rows the tables will have, where the data set is there or can be made."""
    wanted = job.data.synthetic
    if wanted is not None and not job.data.path.exists():
        return wanted.distinct_ids
    try:
        return load_dataset(job.data.path).distinct_ids
    except FleetError:
        return wanted.distinct_ids if wanted is not None else None


def row_bytes(job: Job) -> dict[str, int]:
    """Bytes of a row on a server, by table."""
    geo = "geo" in job.mode_names  # servers only add: the rules' state is in the workers
    return {
        name: bytes_per_row(table.dim, NaiveRule() if geo else table.rule)
        for name, table in job.tables.items()
    }


def server_rows(job: Job, ids: int) -> int:
    """Rows of each table on all servers together."""
    return min(ids, worker_rows(job, ids) or ids)


def server_table_bytes(job: Job, ids: int) -> int:
    """Bytes of all tables on each server."""
    return sum(row_bytes(job).values()) * server_rows(job, ids) // job.cluster.servers


def worker_rows(job: Job, ids: int) -> int:
    """Rows of each table on each worker: none but in geo mode."""
    mode = job.mode_of(0)
    if not isinstance(mode, GeoMode):
        return 0
    return local_rows(ids) if mode.vocabulary == AUTO else mode.vocabulary


def worker_row_bytes(job: Job) -> int:
    """Bytes of one row of all tables together on a worker in geo mode."""
    return sum(local_bytes(table, 1) for table in job.tables.values()) + _MARK_BYTES


def worker_table_bytes(job: Job, ids: int) -> int:
    """Bytes of all tables on each worker."""
    return worker_rows(job, ids) * worker_row_bytes(job)


def check_worker_memory(job: Job, workers: int) -> None:
    """Refuse, before anything starts, local tables that `workers` workers have no memory for here.

    Linux would give it to them all the same, and kill one of the processes later.
    """
    ids = distinct_ids(job)
    if ids is None or not worker_rows(job, ids):
        return
    each = worker_table_bytes(job, ids) + WORKER_BYTES
    available = available_memory()
    if workers * each > available:
        raise UserError(
            f"mode geo keeps {worker_rows(job, ids):,} rows of {_tables(job)} in each worker: with "
            f"{worker_row_bytes(job)} bytes a row about {each / MB:,.0f} MB, for {workers} here "
            f"{workers * each / MB:,.0f} MB, but only {available / MB:,.0f} MB are available; "
            f"{_mend(job, workers, available)}"
        )


def _tables(job: Job) -> str:
    return f"table {next(iter(job.tables))}" if len(job.tables) == 1 else "each table"


def _mend(job: Job, workers: int, available: int) -> str:
    fitting = (available // workers - WORKER_BYTES) // worker_row_bytes(job)
    if fitting < _LEAST_ROWS:
        return "use fewer workers here or a machine with more memory"
    return f"set mode.vocabulary to at most {fitting:,} or make tables.*.dim smaller"
