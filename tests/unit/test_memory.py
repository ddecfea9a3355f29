"""What a job's tables take, what is available, and who refuses to start."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleet_config.errors import UserError
from fleet_config.job import Job
from fleet_config.roles import Role
from fleet_config.tables import NaiveRule, bytes_per_row
from fleetps import launch, memory
from fleetps.agents.worker import WorkerAgent
from fleetps.doctor.probe import Probe
from fleetps.doctor.work import Here, table_lines
from fleetps.doctor.work import job_findings as findings_of
from fleetps.system import memory as system
from fleetps.system.signals import StopRequest

MB = 1 << 20
IDS = 1_000_000


@pytest.fixture
def make_job(tmp_path: Path):
    """A job whose data, 1,000,000 ids, would be made first."""

    def make(mode: object = "async", **sections: object) -> Job:
        synthetic = {"rows": 1000, "test_rows": 100, "distinct_ids": IDS}
        settings = {
            "job": {"name": "x", "output": tmp_path / "runs"},
            "data": {"path": tmp_path / "data", "synthetic": synthetic},
            "mode": mode,
        }
        return Job.model_validate(settings | sections)

    return make


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch):
    def set_to(megabytes: int) -> None:
        for place in ("fleetps.memory", "fleetps.doctor.work"):
            monkeypatch.setattr(f"{place}.available_memory", lambda: megabytes * MB)

    return set_to


def test_memory_of_the_tables(make_job) -> None:
    tables = {
        "embedding": {"dim": 17, "rule": {"name": "naive"}},
        "wide": {"dim": 2, "rule": {"name": "adam"}},
    }
    job = make_job(tables=tables, cluster={"servers": 2})
    sizes = memory.row_bytes(job)
    assert memory.server_table_bytes(job, IDS) == sum(sizes.values()) * IDS / 2
    assert memory.worker_table_bytes(job, IDS) == 0
    geo = make_job({"name": "geo"}, tables=tables)
    assert memory.worker_rows(geo, IDS) == 1 << 24
    assert memory.worker_row_bytes(geo) == 4 * 17 + 4 * (2 + 2 * 2 + 2) + 12
    geo = make_job({"name": "geo", "vocabulary": 5000}, tables=tables)
    assert memory.worker_table_bytes(geo, IDS) == 5000 * memory.worker_row_bytes(geo)
    # On the servers rows have no state, and ids beyond the vocabulary no rows of their own.
    assert memory.row_bytes(geo)["wide"] == bytes_per_row(2, NaiveRule())
    assert memory.server_table_bytes(geo, IDS) == 5000 * sum(memory.row_bytes(geo).values())


def test_the_plan_says_bytes_and_rows_of_each_table(make_job) -> None:
    job = make_job({"name": "geo", "vocabulary": 100_000}, cluster={"servers": 4})
    size = memory.row_bytes(job)["embedding"]
    servers, workers = table_lines(job, IDS)
    each = size * 100_000 / 4 / MB
    assert servers == (
        f"embedding: about {size} bytes for each of 100,000 rows, {each:.1f} MB on each of 4 "
        "servers"
    )
    # dim 17 and the two sums of AdaGrad
    assert workers == "embedding: 76 bytes for each of 100,000 rows, 7.2 MB on each worker"


def test_local_tables_that_do_not_fit_are_refused_with_the_sizes_that_would(
    make_job, available
) -> None:
    job = make_job("geo")
    memory.check_worker_memory(make_job("sync"), 1000)
    available(2000)
    each = (1 << 24) * 88 // MB + 500
    memory.check_worker_memory(job, 1)
    with pytest.raises(UserError) as caught:
        memory.check_worker_memory(job, 2)
    fitting = 500 * MB // 88
    assert str(caught.value) == (
        f"mode geo keeps 16,777,216 rows of table embedding in each worker: with 88 bytes a row "
        f"about {each:,} MB, for 2 here {2 * each:,} MB, but only 2,000 MB are available; set "
        f"mode.vocabulary to at most {fitting:,} or make tables.*.dim smaller"
    )
    memory.check_worker_memory(make_job({"name": "geo", "vocabulary": fitting}), 2)
    available(600)
    with pytest.raises(UserError, match="use fewer workers here or a machine with more memory"):
        memory.check_worker_memory(job, 2)


def test_nobody_starts_a_job_that_does_not_fit(make_job, available) -> None:
    available(1000)
    job = make_job("geo")
    with StopRequest() as stop:
        agent = WorkerAgent(job, Role("worker"), "127.0.0.1:1", stop, 1.0)
        with pytest.raises(UserError, match=r"mode\.vocabulary"):
            agent.check_place()
    (found,) = [
        one for one in findings_of(job, Probe("", "", ""), Here(1, 1)) if one.subject == "memory"
    ]
    assert found.level == "fail"
    assert "mode.vocabulary" in found.says


def test_launch_refuses_before_anything_starts(make_job, available, tmp_path: Path) -> None:
    available(1000)
    small = {"rows": 100, "test_rows": 10, "distinct_ids": 52_000}
    data = {"path": tmp_path / "data", "synthetic": small}
    job = make_job("geo", data=data, cluster={"workers": 20})
    with pytest.raises(UserError, match="for 20 here"):
        launch.run(job)
    assert not (tmp_path / "runs" / "x" / "coordinator.address").exists()


def test_a_data_set_that_is_not_there_says_nothing(make_job, tmp_path: Path, available) -> None:
    available(1)
    job = make_job("geo", data={"path": tmp_path / "none"})
    assert memory.distinct_ids(job) is None
    memory.check_worker_memory(job, 1)


# The files of a control group, and what is left of its limit in MB.
GROUPS = {
    "v2 with a limit": (
        "0::/a/b",
        {"a/memory.max": "300", "a/memory.current": "250", "a/memory.stat": "inactive_file 100"},
        150,
    ),
    "v2 without": ("0::/a", {"a/memory.max": "max", "a/memory.current": "250"}, 1000),
    "v2 in a container": ("0::/a", {"memory.max": "200", "memory.current": "250"}, 0),
    "v1": (
        "4:cpu,memory:/a",
        {
            "memory/a/memory.limit_in_bytes": "400",
            "memory/a/memory.usage_in_bytes": "100",
            "memory/a/memory.stat": "total_inactive_file 10\ntotal_active_file 20",
        },
        330,
    ),
    "none": ("", {}, 1000),
}


@pytest.mark.parametrize("case", GROUPS)
def test_available_memory(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, files, left = GROUPS[case]
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        # In the table above all numbers are MB.
        file.write_text(re.sub(r"\b\d+", lambda number: str(int(number[0]) * MB), text))
    monkeypatch.setattr(system, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(system, "_GROUPS", tmp_path / "groups")
    machine = SimpleNamespace(available=1000 * MB)
    monkeypatch.setattr("psutil.virtual_memory", lambda: machine)
    assert system.available_memory() == left * MB
