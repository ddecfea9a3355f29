"""Whatever dies: the job goes on from its last checkpoint, and every row is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running_job import (
    FLEETPS,
    Program,
    Roles,
    all_rows_are_trained,
    events,
    job_file,
    kill,
    kill_everything,
    nobody_left,
    one,
    processes,
    unused,
    wait_until,
)

from fleet_config.errors import EXIT_OK

pytestmark = pytest.mark.cluster

ROWS = 24_000  # of an epoch, evaluation included
EPOCHS = 6
SECONDS = 240.0
SERVER, WORKER = "fleetps.training.server", "fleetps.training.worker"
# Eight tasks in an epoch, of which four are in a checkpoint.
SMALL = {"servers": 2, "workers": 2, "epochs": EPOCHS, "task_rows": 2_500, "checkpoint_tasks": 4}
Launch = Callable[..., Program]


@pytest.fixture
def launch(tmp_path: Path, small_data: Path) -> Launch:
    def start(label: str = "program", **changes: Any) -> Program:
        file = job_file(tmp_path, small_data, **{**SMALL, **changes})
        return Program([*FLEETPS, "launch", "--config", str(file)], tmp_path, label=label)

    return start


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "runs/job"


def wait_for(run: Path, program: Program, kind: str, count: int = 1) -> None:
    """Until so many things of this kind have happened."""

    def seen() -> bool:
        assert program.popen.poll() is None, program.everything()
        return len(events(run, kind)) >= count

    wait_until(seen, 120, f"{count} x {kind}", program.everything)


def ends_well(program: Program, run: Path, said: str = "") -> None:
    """`said`: the only words on standard error."""
    assert program.exit_code(SECONDS) == EXIT_OK, program.everything()
    nobody_left()
    all_rows_are_trained(run, EPOCHS, ROWS)
    history = json.loads((run / "result.json").read_text())["history"]
    assert [epoch["train_rows"] for epoch in history] == [20_000] * EPOCHS
    # Nothing begins anew in silence, with empty tables or new dense parameters.
    assert min(epoch["auc"] for epoch in history[2:]) > history[0]["auc"] - 0.01
    assert all(said and said in line for line in program.err.splitlines()), program.err


def checkpoints(run: Path) -> list[str]:
    return [event["text"].split(":")[0] for event in events(run, "checkpoint")]


def test_a_killed_server(launch: Launch, run: Path) -> None:
    program = launch()
    wait_for(run, program, "checkpoint", 3)
    kill(SERVER, env="FLEETPS_RANK=1")
    ends_well(program, run)
    (generation,) = events(run, "generation")
    assert generation["who"] == "server 1"
    assert generation["text"].startswith("its Paddle process ended: killed by SIGKILL")
    named = [name for name in checkpoints(run) if name in generation["text"]]
    assert len(named) == 1
    assert len(events(run, "restored")) == 1
    assert f"server 1: {generation['text']}" in program.out


def test_a_killed_server_before_there_is_a_checkpoint(launch: Launch, run: Path) -> None:
    program = launch(checkpoint_tasks="null")
    program.wait_for_output("epoch 2/6: AUC")
    kill(SERVER, env="FLEETPS_RANK=0")
    ends_well(program, run)
    (generation,) = events(run, "generation")
    assert "begins from the beginning, as there is no checkpoint yet" in generation["text"]


def test_two_servers_at_once(launch: Launch, run: Path) -> None:
    program = launch()
    wait_for(run, program, "checkpoint", 3)
    victims = processes(SERVER)
    assert len(victims) >= 2
    for victim in victims:
        victim.kill()
    ends_well(program, run)
    assert len(events(run, "generation")) == 1


def test_a_killed_agent_of_a_server(launch: Launch, run: Path) -> None:
    program = launch()
    wait_for(run, program, "checkpoint", 3)
    kill("fleetps.main", env=f"SERVER_ENDPOINT={endpoint(1)}")
    ends_well(program, run)
    (generation,) = events(run, "generation")
    assert generation["who"] == "server 1"
    assert generation["text"].startswith("its agent (process ")


def endpoint(rank: int) -> str:
    """The address of a server of the job that runs."""
    return one("fleetps.main", env="WORKER_INDEX=0").environ()["SERVER_ENDPOINTS"].split(",")[rank]


def test_a_killed_coordinator(launch: Launch, run: Path) -> None:
    program = launch()
    wait_for(run, program, "checkpoint", 2)
    kill("fleetps.coordinator", env="")
    wait_for(run, program, "restarted")
    wait_for(run, program, "checkpoint", 4)
    kill("fleetps.coordinator", env="")
    ends_well(program, run, said="the coordinator ended: killed by SIGKILL")
    assert events(run, "generation") == []


@pytest.mark.parametrize("moment", ["training", "checkpoint"])
def test_the_whole_job(launch: Launch, run: Path, moment: str) -> None:
    first = launch("first")
    wait_for(run, first, "checkpoint", 3)
    if moment == "checkpoint":
        partial = run / "checkpoints"
        wait_until(lambda: any(partial.glob(".partial-*/tables")), 60, "a save", first.everything)
    kill_everything()
    second = launch("second")
    ends_well(second, run)
    assert "holds an unfinished run" in second.out
    (generation,) = events(run, "generation")
    assert generation["text"].startswith("the job was started again; generation 1 begins with")


def test_the_whole_job_with_more_servers_and_fewer_workers(launch: Launch, run: Path) -> None:
    first = launch("first")
    wait_for(run, first, "checkpoint", 3)
    kill_everything()
    second = launch("second", servers=3, workers=1)
    assert second.exit_code(SECONDS) == EXIT_OK, second.everything()
    nobody_left()
    result = json.loads((run / "result.json").read_text())
    assert [epoch["train_rows"] for epoch in result["history"]] == [20_000] * EPOCHS
    rows = result["accounting"]
    assert rows["leased"] == rows["done"] + rows["returned"]
    (resumed,) = events(run, "resumed")
    assert "goes on with checkpoint " in resumed["text"]


def test_a_worker_of_mode_sync(launch: Launch, run: Path) -> None:
    program = launch(mode="sync")
    wait_for(run, program, "checkpoint", 3)
    kill(WORKER, env="PADDLE_TRAINER_ID=1")
    ends_well(program, run)
    (generation,) = events(run, "generation")
    assert generation["who"] == "worker 1"
    assert "in mode sync the other workers can't go on without it" in generation["text"]


def test_a_server_that_comes_back_at_another_address(
    tmp_path: Path, small_data: Path, free_port: int, run: Path
) -> None:
    """As in containers: a new process under the same rank, before the old one is missed."""
    job = Roles(tmp_path, job_file(tmp_path, small_data, **SMALL), f"127.0.0.1:{free_port}")
    coordinator = job.start("coordinator", ROLE="COORDINATOR")
    victim = job.start("server-a", ROLE="SERVER", SERVER_PORT=unused())
    others = [
        job.start("server-b", ROLE="SERVER", SERVER_PORT=unused()),
        job.start("worker-a", ROLE="WORKER"),
        job.start("worker-b", ROLE="WORKER"),
    ]
    wait_for(run, coordinator, "checkpoint", 2)
    victim.popen.kill()
    victim.exit_code()
    others.append(job.start("server-again", ROLE="SERVER", SERVER_PORT=unused()))
    for program in [coordinator, *others]:
        assert program.exit_code(SECONDS) == EXIT_OK, program.everything()
    nobody_left()
    all_rows_are_trained(run, EPOCHS, ROWS)
    assert len(events(run, "generation")) == 1
