"""The doctor: what it finds, and that it starts nothing."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from fleet_config.errors import UserError
from fleet_config.job import Job, load_job
from fleet_config.roles import resolve_role
from fleetps.data.dataset import Column
from fleetps.data.synthetic import SyntheticSpec, make_synthetic
from fleetps.doctor import machine, network, probe, report, run
from fleetps.doctor.finding import Finding
from fleetps.doctor.machine import machine_findings
from fleetps.doctor.network import role_findings
from fleetps.doctor.plan import plan
from fleetps.doctor.probe import Probe
from fleetps.doctor.rows import row_mistake
from fleetps.doctor.work import Here, job_findings

GOOD = Probe("2.6.2", "", "")
COLUMNS = (
    Column("label", "label", 1, ("label",)),
    Column("dense", "dense", 2, ("I1", "I2")),
    Column("ids", "sparse", 2, ("C1", "C2")),
    Column("tags", "sparse", None, ("tags",)),
)


@pytest.fixture(autouse=True)
def no_role(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROLE", "TRAINING_ROLE", "TF_CONFIG", "COORDINATOR", "FLEETPS_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("doctor") / "data"
    make_synthetic(path, SyntheticSpec(rows=2000, test_rows=500))
    return path


@pytest.fixture
def job_file(tmp_path: Path, made_once: Path) -> Path:
    shutil.copytree(made_once, tmp_path / "data")
    file = tmp_path / "job.yaml"
    file.write_text(
        f"job: {{name: x, output: {tmp_path / 'runs'}}}\ndata: {{path: {tmp_path / 'data'}}}\n",
        encoding="utf-8",
    )
    return file


def of(findings, subject: str) -> list[Finding]:
    return [finding for finding in findings if finding.subject == subject]


def levels(findings) -> set[str]:
    return {finding.level for finding in findings}


def look(job: Job, paddle: Probe = GOOD) -> list[Finding]:
    return list(job_findings(job, paddle, Here(job.cluster.servers, job.cluster.workers)))


def test_a_good_job_on_a_good_machine(job_file: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(report, "probe", lambda _: GOOD)
    code = run(str(job_file), [], dry_run=False)
    said = capsys.readouterr().out
    assert code == 0, said
    assert "2,000 rows" in said
    assert "with its parameter server" in said
    assert "nothing to mend" in said
    assert not (job_file.parent / "runs").exists()


def test_everything_wrong_is_told_at_once(job_file: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("ROLE", "BOSS")
    monkeypatch.setattr(report, "probe", lambda _: Probe("", "Paddle is missing", ""))
    assert run(str(job_file), ["job.nam=y"], dry_run=False) == 2
    said = capsys.readouterr().out
    assert "ROLE=BOSS" in said
    assert "did you mean job.name?" in said
    assert "Paddle is missing" in said
    assert "3 to mend" in said


def test_a_wrong_model_is_a_mistake_in_the_job_file(job_file: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(report, "probe", lambda _: GOOD)
    assert run(str(job_file), ["model.name=deepfn"], dry_run=False) == 2
    assert "job file   --set model.name=deepfn: model.name: no model" in capsys.readouterr().out


def test_a_wrong_model_is_found_without_starting_a_job() -> None:
    found = probe.probe({"model": "deepfn", "params": {}})
    assert "did you mean deepfm?" in found.model_problem
    assert found.paddle == "2.6.2"
    assert found.problem == ""


def test_a_paddle_that_can_not_be_loaded(tmp_path: Path, monkeypatch) -> None:
    package = tmp_path / "paddle"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit(3)", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path.cwd()}")
    assert "can't be loaded (exit code 3)" in probe.probe({}).problem


def test_both_paddles(monkeypatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.6.2")
    (paddle,) = of(machine_findings({}, GOOD), "Paddle")
    assert paddle.level == "fail"
    assert "both installed" in paddle.says


def test_a_wrong_cpu_setting_and_an_unknown_host_name(monkeypatch) -> None:
    monkeypatch.setattr(machine, "mkl_setting", lambda: "5")
    monkeypatch.setattr(socket, "gethostname", lambda: "nobody.invalid")
    findings = list(machine_findings({"MKL_DEBUG_CPU_TYPE": "7"}, GOOD))
    (cpu,) = of(findings, "CPU")
    assert cpu.mend == "unset MKL_DEBUG_CPU_TYPE"
    (name,) = of(findings, "host name")
    assert name.level == "fail"
    assert "/etc/hosts" in name.mend


def test_data_that_will_be_made(job_file: Path) -> None:
    job = load_job(job_file, ["data.path=elsewhere", "data.synthetic={rows: 1000, test_rows: 10}"])
    (data,) = of(look(job), "data")
    assert "will be made" in data.says


def test_data_that_is_missing(job_file: Path) -> None:
    (data,) = of(look(load_job(job_file, ["data.path=elsewhere"])), "data")
    assert data.level == "fail"
    assert "elsewhere" in data.says


def test_a_split_that_is_missing(job_file: Path) -> None:
    findings = of(look(load_job(job_file, ["evaluate.split=tset"])), "data")
    assert any("tset" in finding.says for finding in findings if finding.level == "fail")


def test_files_that_are_not_read_are_named(job_file: Path) -> None:
    (job_file.parent / "data" / ".hidden").touch()
    findings = of(look(load_job(job_file)), "data")
    assert levels(findings) == {"ok"}
    assert any(".hidden" in finding.says for finding in findings)


def test_a_shard_that_is_empty(job_file: Path) -> None:
    shard = next((job_file.parent / "data").glob("train-*"))
    shard.write_bytes(b"")
    findings = of(look(load_job(job_file)), "data")
    assert levels(findings) == {"fail"}
    assert shard.name in findings[0].says


def test_a_row_that_does_not_fit_the_columns(job_file: Path) -> None:
    dataset = job_file.parent / "data" / "dataset.json"
    document = json.loads(dataset.read_text(encoding="utf-8"))
    document["columns"][1]["features"].append("I14")
    document["columns"][1]["width"] += 1
    dataset.write_text(json.dumps(document), encoding="utf-8")
    failed = [one for one in of(look(load_job(job_file)), "data") if one.level == "fail"]
    assert "column dense has" in failed[0].says
    assert ":1: " in failed[0].says


GOOD_ROW = "1 0 2 0.5 -1e-3 2 7 8 3 1 2 3"
BAD_ROWS = {
    "": "column label begins with '' in place of its count",
    "1 2 2 0.5 1 2 7 8 1 1": "column label has the value '2'",
    "1 0 3 0.5 1 1 2 7 8 1 1": "column dense has 3 values in place of 2",
    "1 0 2 0.5 nan 2 7 8 1 1": "column dense has the value 'nan'",
    "1 0 2 0.5 x 2 7 8 1 1": "column dense has the value 'x'",
    "1 0 2 0.5 1 2 7 -8 1 1": "column ids has the value '-8'",
    f"1 0 2 0.5 1 2 7 {1 << 62} 1 1": f"column ids has the value '{1 << 62}'",
    "1 0 2 0.5 1 2 7 8 0": "column tags begins with '0' in place of its count",
    "1 0 2 0.5 1 2 7 8 3 1": "the row ends in column tags",
    f"{GOOD_ROW} 9": "more values than the columns take",
    "1 0  2 0.5 1 2 7 8 1 1": "column dense begins with '' in place of its count",
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_rows(row: str) -> None:
    assert row_mistake(row, COLUMNS) == BAD_ROWS[row]
    assert row_mistake(GOOD_ROW, COLUMNS) is None


def test_memory_and_output(job_file: Path, monkeypatch) -> None:
    monkeypatch.setattr("fleetps.doctor.work.available_memory", lambda: 100 << 20)
    findings = look(load_job(job_file, ["job.output=/proc"]))
    assert levels(of(findings, "memory")) == {"fail"}
    assert levels(of(findings, "output")) == {"fail"}
    (output,) = of(look(load_job(job_file, [f"job.output={job_file}"])), "output")
    assert output.level == "fail"
    assert f"{job_file} is a file; move it away" in output.says


def test_the_port_and_the_names_of_a_server(free_port: int) -> None:
    servers = f"127.0.0.1:{free_port},nobody.invalid:1"
    environ = {
        "ROLE": "SERVER",
        "SERVER_ENDPOINTS": servers,
        "SERVER_ENDPOINT": f"127.0.0.1:{free_port}",
    }
    with socket.create_server(("127.0.0.1", free_port)):
        findings = list(role_findings(resolve_role(environ), environ))
    failed = [finding.says for finding in findings if finding.level == "fail"]
    assert len(failed) == 2
    assert "nobody.invalid" in failed[0]
    assert f"127.0.0.1:{free_port} is in use" in failed[1]


def test_a_coordinator_that_everybody_could_reach_needs_a_token(free_port: int) -> None:
    environ = {"ROLE": "COORDINATOR", "COORDINATOR": f"0.0.0.0:{free_port}"}
    (access,) = of(role_findings(resolve_role(environ), environ), "access")
    assert access.level == "fail"
    assert "FLEETPS_TOKEN_FILE" in access.mend
    environ |= {"FLEETPS_TOKEN": "t"}
    assert of(role_findings(resolve_role(environ), environ), "access") == []
    environ = {"ROLE": "COORDINATOR", "COORDINATOR": f"127.0.0.1:{free_port}"}
    assert of(role_findings(resolve_role(environ), environ), "access") == []


def test_a_coordinator_that_does_not_answer(free_port: int, monkeypatch) -> None:
    monkeypatch.setattr(network, "_PATIENCE", 0.2)
    environ = {"ROLE": "WORKER", "COORDINATOR": f"127.0.0.1:{free_port}"}
    (coordinator,) = of(role_findings(resolve_role(environ), environ), "coordinator")
    assert coordinator.level == "warn"
    assert str(free_port) in coordinator.says


def test_plan_of_a_local_role(job_file: Path) -> None:
    overrides = ["cluster.servers=2", "cluster.workers=3", "data.task_rows=500"]
    said = "\n".join(plan("job.yaml", load_job(job_file, overrides), resolve_role({})))
    assert "local (no role in the environment)" in said
    assert said.count("port chosen at the start") == 6
    assert "2,000 training rows in 4 tasks" in said
    assert "8 shards, 4 on each server" in said
    assert "fleetrun --server_num=2 --trainer_num=3" in said


def test_plan_of_static_lists_starts_nothing(job_file: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("ROLE", "WORKER")
    monkeypatch.setenv("SERVER_ENDPOINTS", "a:1,b:1,c:1")
    assert run(str(job_file), [], dry_run=True) == 0
    said = capsys.readouterr().out
    assert "worker (ROLE=WORKER), coordinator a:1001" in said
    assert "coordinator  a:1001, started by server 0" in said
    assert "server 2     c:1" in said


def test_dry_run_refuses_a_contradictory_environment(job_file: Path, monkeypatch) -> None:
    monkeypatch.setenv("ROLE", "SERVER")
    monkeypatch.setenv("TRAINING_ROLE", "TRAINER")
    with pytest.raises(UserError, match="disagree"):
        run(str(job_file), [], dry_run=True)
