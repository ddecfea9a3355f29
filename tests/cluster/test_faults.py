"""Whatever happens to a job, it ends with exit code 0, every row trained, and the same AUC.

Each job suffers one fault after the other. What is done about them is in docs/coordinator.md.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import COORDINATOR, LIVES, WORKER
from hurt_job import SECONDS, TEST_ROWS, TOKEN, TRAIN_ROWS, Hurt, Watched, rows_add_up, write_job
from isolation import MARK
from network import HERE, THERE, two_hosts
from running_job import (
    FLEETPS,
    TRAIN,
    Program,
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

from fleet_config.errors import EXIT_OK, EXIT_TRY_AGAIN, EXIT_USER
from fleetps.data.synthetic import SyntheticSpec, make_synthetic

pytestmark = pytest.mark.cluster

EPOCHS = 8  # more don't change the model any more
AUC = 0.003  # the most by which a fault may change it


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few ids, many rows: whatever the order of the steps, the model that comes out is the same."""
    path = tmp_path_factory.mktemp("data") / "stable"
    make_synthetic(path, SyntheticSpec(rows=TRAIN_ROWS, test_rows=TEST_ROWS, distinct_ids=130))
    return path


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The AUC of a job to which nothing happens."""
    directory = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, uuid.uuid4().hex)  # it runs before any test
        job = Hurt(directory, write_job(directory, data, epochs=EPOCHS, step=60))
        try:
            auc = job.ends_well(EPOCHS)
        finally:
            kill_everything()
    assert events(job.run, "generation") == events(job.run, "worker-lost") == []
    return auc


@pytest.mark.parametrize("life", LIVES)
def test_a_hard_life(life: str, data: Path, undisturbed: float, tmp_path: Path) -> None:
    settings = {"epochs": EPOCHS, **LIVES[life].settings}
    job = Hurt(tmp_path, write_job(tmp_path, data, **settings))
    job.checkpoints = bool(settings.get("checkpoints", True))
    job.until_it_trains()
    if job.checkpoints:
        job.wait_for("checkpoint")
    for fault in LIVES[life].faults:
        job.suffer(fault)
    assert job.ends_well(settings["epochs"]) == pytest.approx(undisturbed, abs=AUC)
    texts = [event["text"] for event in events(job.run, "generation")]
    beginning = "begins from the beginning, as there is no checkpoint yet"
    found = [beginning in text for text in texts]
    assert found == [not job.checkpoints] * len(texts)


def test_the_whole_job(data: Path, undisturbed: float, tmp_path: Path) -> None:
    """All its processes at once, in the middle of a save; then with 3 servers, then with 1."""
    file = write_job(tmp_path, data, epochs=EPOCHS)
    job = Hurt(tmp_path, file)
    job.wait_for("checkpoint")
    job.wait_for_save()
    kill_everything()
    job = Hurt(tmp_path, file, "again")
    job.until_it_trains()
    assert "holds an unfinished run" in job.program.out
    (generation,) = events(job.run, "generation")
    assert generation["text"].startswith("the job was started again; generation 1 begins with")
    for servers in (3, 1):
        kill_everything()
        file = write_job(tmp_path, data, epochs=EPOCHS, servers=servers)
        job = Hurt(tmp_path, file, f"{servers}-servers")
        job.until_it_trains()
        (resumed,) = events(job.run, "resumed")
        assert "goes on with checkpoint " in resumed["text"]
        job.wait_for_more("checkpoint")
    assert job.ends_well(EPOCHS) == pytest.approx(undisturbed, abs=AUC)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 24 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount, umount = (shutil.which(name) or "" for name in ("mount", "umount"))
    command = [mount, "-t", "tmpfs", "-o", "size=24m", "none", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run([umount, str(place)], check=True)


def test_a_coordinator_that_can_not_keep_its_state(
    data: Path, undisturbed: float, tmp_path: Path, small_disk: Path
) -> None:
    """Its disk is full, then its file is damaged: one sentence; the same command goes on."""
    file = write_job(tmp_path, data, epochs=EPOCHS, output=small_disk)
    job = Hurt(tmp_path, file, output=small_disk)
    job.wait_for("checkpoint")
    filler = fill(small_disk)
    assert job.program.exit_code(SECONDS) == EXIT_TRY_AGAIN, job.program.everything()
    assert f"the disk that holds {job.run} is full" in job.program.err
    nobody_left()
    filler.unlink()

    job = Hurt(tmp_path, file, "room", small_disk)
    job.until_it_trains()
    state = job.run / "coordinator.sqlite"
    damage(state, state.with_name("coordinator.sqlite-wal"))
    kill(COORDINATOR, env="")
    assert job.program.exit_code(SECONDS) == EXIT_USER, job.program.everything()
    assert f"{state}: the coordinator's state is damaged" in job.program.err
    assert "the job goes on from its last checkpoint" in job.program.err
    nobody_left()

    job = Hurt(tmp_path, file, "mended", small_disk)
    job.until_it_trains()
    assert job.ends_well(EPOCHS) == pytest.approx(undisturbed, abs=AUC)


def damage(*files: Path) -> None:
    for file in files:
        with file.open("r+b") as damaged:
            damaged.write(b"x" * file.stat().st_size)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            return filler
    raise AssertionError("the disk has no end")


def test_a_server_on_another_host(data: Path, undisturbed: float, tmp_path: Path) -> None:
    """It can't be reached for a moment; then by the workers only; then for longer; then it comes
    back somewhere else."""
    file = write_job(tmp_path, data, epochs=EPOCHS, heartbeat=1, step=20)
    env = {"COORDINATOR": f"{HERE}:7164", "FLEETPS_TOKEN": TOKEN}
    with two_hosts() as network:

        def start(label: str, host: str = HERE, **role: str) -> Program:
            command = [*TRAIN, "--config", str(file)]
            return network.start(host, command, tmp_path, {**env, **role}, label)

        job = Watched(start("coordinator", ROLE="COORDINATOR"), tmp_path / "runs/job")
        others = [
            start("server-a", ROLE="SERVER", SERVER_ENDPOINT=f"{HERE}:7001"),
            start("worker-a", ROLE="WORKER"),
            start("worker-b", ROLE="WORKER"),
        ]
        far = start("server-b", THERE, ROLE="SERVER", SERVER_ENDPOINT=f"{THERE}:7002")
        job.wait_for("checkpoint")

        network.pull()
        time.sleep(2.5)  # less than five heartbeats
        network.plug()
        job.wait_for_more("checkpoint", 2)
        assert events(job.run, "generation") == events(job.run, "worker-lost") == []

        network.cut(7002)
        job.wait_for_more("cut-off")
        network.mend(7002)
        job.wait_for_more("checkpoint", 2)
        assert events(job.run, "generation") == []
        assert events(job.run, "cut-off")[-1]["text"].endswith(f" ({THERE}:7002)")

        network.pull()
        job.wait_for("generation")
        network.plug()
        job.wait_for("restored")
        job.wait_for_more("checkpoint")
        (generation,) = events(job.run, "generation")
        assert f"its agent or host at {THERE}:7002 has died" in generation["text"]

        far.popen.kill()
        far.exit_code()
        others.append(start("server-c", ROLE="SERVER", SERVER_ENDPOINT=f"{HERE}:7003"))
        for program in (job.program, *others):
            assert program.exit_code(SECONDS) == EXIT_OK, program.everything()
    nobody_left()
    assert len(events(job.run, "generation")) == 2
    assert rows_add_up(job.run, EPOCHS) == pytest.approx(undisturbed, abs=AUC)


def test_the_only_worker_is_given_up_in_the_end(tmp_path: Path, small_data: Path) -> None:
    file = job_file(tmp_path, small_data, epochs=10_000, restarts=1)
    program = Program([*FLEETPS, "launch", "--config", str(file)], tmp_path)
    program.wait_for_output("AUC")
    kill(WORKER, env="PADDLE_TRAINER_ID=0")
    wait_until(lambda: bool(processes(WORKER)), 30, "it to be started again")
    kill(WORKER, env="PADDLE_TRAINER_ID=0")
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    (sentence,) = program.err.splitlines()
    assert sentence.startswith("worker 0: its Paddle process ended: killed by SIGKILL")
    assert sentence.endswith(
        "it had been started again 1 time (cluster.restarts); no other worker is left"
    )


def test_in_mode_sync_the_one_that_died_is_named(tmp_path: Path, small_data: Path) -> None:
    """The others' processes wait in Gloo for ever, or crash: their agents end them."""
    file = job_file(tmp_path, small_data, workers=2, epochs=10_000, mode="sync", generations=0)
    program = Program([*FLEETPS, "launch", "--config", str(file)], tmp_path)
    program.wait_for_output("AUC")
    one(WORKER, env="PADDLE_TRAINER_ID=1").send_signal(signal.SIGSEGV)
    assert program.exit_code() == EXIT_TRY_AGAIN, program.everything()
    nobody_left()
    (sentence,) = program.err.splitlines()
    assert sentence.startswith("worker 1: its Paddle process ended: ")
    assert sentence.endswith("; in mode sync the other workers can't go on without it")


HANGING = """
from fleet_config.sections import Deadlines
from fleetps.training.pulse import Pulse

def a_batch_that_never_ends(pulse):
    while True:
        pulse.check()  # by the thread that reports, in a real worker

pulse = Pulse(Deadlines(step=0.2, first_step=60))
with pulse.task("task 7 (train.txt rows 1-9)", alone=True):
    pulse.step()
    a_batch_that_never_ends(pulse)
"""


def test_a_hung_step_leaves_its_stack(tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{unused()}"
    env = {"PADDLE_PSERVERS_IP_PORT_LIST": endpoint}
    program = Program([sys.executable, "-c", HANGING], tmp_path, env)
    assert program.exit_code(60) == EXIT_TRY_AGAIN
    assert "a_batch_that_never_ends" in program.err
    reason = json.loads((tmp_path / "error.json").read_text())["message"]
    assert reason.startswith("made no step in task 7 (train.txt rows 1-9) within cluster.deadlines")
    assert f"; it can't reach server 0 ({endpoint}); " in reason
