"""The same job under Paddle's own launchers, and alone without any."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running_job import ROOT, START_SECONDS, TRAIN, Program, job_file, nobody_left, one, wait_until

from fleet_config.errors import EXIT_OK, EXIT_STOPPED, EXIT_TRY_AGAIN, EXIT_USER
from fleetps.system.rundir import RunDirectory

pytestmark = pytest.mark.cluster

FOREVER = 10_000  # epochs
# The newer launcher looks at its children every second or two, and ends them one by one.
LAUNCHER_SECONDS = 30.0
FLEETRUN = str(Path(sys.executable).with_name("fleetrun"))
NEWER, OLDER = "--trainer_num", "--worker_num"
Fleetrun = Callable[..., Program]


@pytest.fixture
def fleetrun(tmp_path: Path, small_data: Path) -> Fleetrun:
    def start(
        workers_option: str, *, epochs: int = FOREVER, servers: int = 1, generations: int = 10
    ) -> Program:
        # The environment that the launcher makes says how many there are, not the job file.
        file = job_file(
            tmp_path,
            small_data,
            servers=3,
            workers=3,
            epochs=epochs,
            restarts=0,
            generations=generations,
        )
        command = [FLEETRUN, f"--server_num={servers}", f"{workers_option}=2"]
        return Program([*command, str(ROOT / "train.py"), "--config", str(file)], tmp_path)

    return start


def training(program: Program) -> Program:
    """Wait until worker 0 has told of the first epoch, in the launcher's log directory."""
    log = program.out_file.parent / "log/workerlog.0"
    wait_until(
        lambda: log.exists() and "epoch 1/" in log.read_text(),
        START_SECONDS,
        f"an epoch in {log}",
        program.everything,
    )
    return program


@pytest.mark.parametrize("workers_option", [NEWER, OLDER])
def test_a_job_ends_by_itself(fleetrun: Fleetrun, tmp_path: Path, workers_option: str) -> None:
    program = fleetrun(workers_option, epochs=2, servers=2)
    assert program.exit_code(120) == EXIT_OK, program.everything()
    with RunDirectory(tmp_path / "runs/job").locked():
        """The next job can begin at once."""
    nobody_left()
    result = json.loads((tmp_path / "runs/job/result.json").read_text())
    assert result["accounting"]["done"] == 2 * (20_000 + 4_000)
    for log in ("log/workerlog.0", "log/serverlog.0"):
        assert "best possible AUC" in (tmp_path / log).read_text()


@pytest.mark.parametrize(
    ("workers_option", "code"), [(NEWER, EXIT_TRY_AGAIN), (OLDER, -signal.SIGTERM)]
)
def test_a_server_lost_too_often_fails_the_launcher(
    fleetrun: Fleetrun, tmp_path: Path, workers_option: str, code: int
) -> None:
    program = training(fleetrun(workers_option, generations=0))
    one("fleetps.training.server").kill()
    assert program.exit_code(LAUNCHER_SECONDS) == code, program.everything()
    nobody_left()
    said = "server 0: its Paddle process ended: killed by SIGKILL"
    assert said in (tmp_path / "log/workerlog.0").read_text()


@pytest.mark.parametrize("workers_option", [NEWER, OLDER])
def test_a_job_goes_on_without_a_worker_and_begins_again_without_a_server(
    fleetrun: Fleetrun, tmp_path: Path, workers_option: str
) -> None:
    program = training(fleetrun(workers_option, epochs=6))
    log = tmp_path / "log/workerlog.0"
    one("fleetps.training.worker", env="PADDLE_TRAINER_ID=1").kill()
    wait_until(
        lambda: "; the job goes on without it" in log.read_text(), 30, "the loss", log.read_text
    )
    assert "worker 1: its Paddle process ended: killed by SIGKILL" in log.read_text()
    one("fleetps.training.server").kill()
    assert program.exit_code(120) == EXIT_OK, program.everything()
    nobody_left()
    assert "generation 1 begins from the beginning" in log.read_text()
    assert "epoch 6/6: AUC" in log.read_text()


@pytest.mark.parametrize(("workers_option", "code"), [(NEWER, 15), (OLDER, -signal.SIGTERM)])
def test_a_terminated_launcher_leaves_nobody(
    fleetrun: Fleetrun, workers_option: str, code: int
) -> None:
    program = training(fleetrun(workers_option))
    program.send(signal.SIGTERM)
    assert program.exit_code(LAUNCHER_SECONDS) == code, program.everything()
    nobody_left()


@pytest.mark.parametrize("workers_option", [NEWER, OLDER])
def test_a_killed_launcher_leaves_nobody(fleetrun: Fleetrun, workers_option: str) -> None:
    program = training(fleetrun(workers_option))
    program.send(signal.SIGKILL)
    program.exit_code()
    nobody_left()


@pytest.mark.parametrize(
    ("workers_option", "which", "code"),
    [
        (NEWER, "PADDLE_TRAINER_ID=1", None),
        (NEWER, "TRAINING_ROLE=PSERVER", None),
        (OLDER, "TRAINING_ROLE=PSERVER", -signal.SIGTERM),
    ],
)
def test_a_killed_agent_fails_the_launcher(
    fleetrun: Fleetrun, workers_option: str, which: str, code: int | None
) -> None:
    program = training(fleetrun(workers_option))
    one("train.py", "--config", env=which).kill()
    ended = program.exit_code(LAUNCHER_SECONDS)
    assert ended != EXIT_OK if code is None else ended == code, program.everything()
    nobody_left()


def test_the_older_launcher_goes_on_without_a_killed_agent(
    fleetrun: Fleetrun, tmp_path: Path
) -> None:
    """It doesn't notice, and the job does without the worker."""
    program = training(fleetrun(OLDER))
    one("train.py", "--config", env="PADDLE_TRAINER_ID=1").kill()
    log = tmp_path / "log/workerlog.0"
    wait_until(
        lambda: "worker 1: not heard of for" in log.read_text(), 30, "the loss", log.read_text
    )
    assert "; the job goes on without it" in log.read_text()
    program.send(signal.SIGTERM)
    assert program.exit_code(LAUNCHER_SECONDS) == -signal.SIGTERM, program.everything()
    nobody_left()


@pytest.mark.parametrize(
    ("option", "code"), [("trainers", EXIT_TRY_AGAIN), ("workers", -signal.SIGTERM)]
)
def test_a_coordinator_that_cannot_bind_fails_the_launcher(
    tmp_path: Path, small_data: Path, option: str, code: int
) -> None:
    file = job_file(tmp_path, small_data)
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        server = occupied.getsockname()[1] - 1000  # the coordinator's port is the server's + 1000
        command = [FLEETRUN, f"--servers=127.0.0.1:{server}", f"--{option}=127.0.0.1:{server + 1}"]
        train = [str(ROOT / "train.py"), "--config", str(file)]
        program = Program([*command, *train], tmp_path)
        assert program.exit_code(LAUNCHER_SECONDS) == code, program.everything()
    nobody_left()
    said = (tmp_path / "log/serverlog.0").read_text()
    assert f"127.0.0.1:{server + 1000}" in said
    assert "in use" in said


@pytest.mark.parametrize(
    ("workers_option", "codes"),
    # 241: the launcher ended a process that had not yet read its job file.
    [(NEWER, {EXIT_USER, 241}), (OLDER, {-signal.SIGTERM})],
)
def test_a_mistake_in_the_job_file_ends_the_launcher(
    tmp_path: Path, small_data: Path, workers_option: str, codes: set[int]
) -> None:
    file = job_file(tmp_path, small_data)
    file.write_text(file.read_text().replace("batch_size", "batchsize"))
    command = [FLEETRUN, "--server_num=1", f"{workers_option}=1", str(ROOT / "train.py")]
    program = Program([*command, "--config", str(file)], tmp_path)
    assert program.exit_code(LAUNCHER_SECONDS) in codes, program.everything()
    nobody_left()
    logs = "".join(log.read_text() for log in (tmp_path / "log").glob("*log.0"))
    assert "data.batchsize" in logs


def test_without_a_role_it_trains_alone(tmp_path: Path, small_data: Path) -> None:
    file = job_file(tmp_path, small_data, epochs=2)
    program = Program([*TRAIN, "--config", str(file)], tmp_path)
    assert program.exit_code(120) == EXIT_OK, program.everything()
    nobody_left()
    assert program.out.splitlines()[0] == "job: local training in one process, no servers"
    assert "epoch 2/2: AUC" in program.out
    assert "best possible AUC" in program.out
    result = json.loads((tmp_path / "runs/job/result.json").read_text())
    assert result["accounting"]["done"] == 2 * (20_000 + 4_000)


def test_training_alone_can_be_stopped(tmp_path: Path, small_data: Path) -> None:
    file = job_file(tmp_path, small_data, epochs=FOREVER)
    program = Program([*TRAIN, "--config", str(file)], tmp_path)
    program.wait_for_output("epoch 1/10000: AUC")
    program.send(signal.SIGINT)
    assert program.exit_code() == EXIT_STOPPED, program.everything()
    nobody_left()
    assert program.err.rstrip().endswith("stopped by Ctrl-C")


def test_training_alone_says_how_its_process_died(tmp_path: Path, small_data: Path) -> None:
    file = job_file(tmp_path, small_data, epochs=FOREVER)
    program = Program([*TRAIN, "--config", str(file)], tmp_path)
    program.wait_for_output("epoch 1/10000: AUC")
    one("fleetps.training.worker").kill()
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    assert "its Paddle process ended: killed by SIGKILL" in program.err
