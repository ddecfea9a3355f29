"""A job started as a user would start it, then watched and hurt from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from isolation import MARK, free_port

ROOT = Path(__file__).resolve().parents[2]
FLEETPS = (sys.executable, "-c", "from fleetps.cli import main; main()")
TRAIN = (sys.executable, str(ROOT / "train.py"))

# The longest that the end of all processes may take, whatever caused it.
END_SECONDS = 45.0
# The longest that a small job may take to get going on a busy machine.
START_SECONDS = 120.0

_JOB = """\
job: {{name: {name}, epochs: {epochs}, output: {output}}}
cluster:
  servers: {servers}
  workers: {workers}
  heartbeat: 0.5
  restarts: {restarts}
  generations: {generations}
  deadlines: {{rendezvous: {rendezvous}, stop: 8}}
data: {{path: {data}, batch_size: 256, task_rows: {task_rows}}}
checkpoint: {{every: {{epochs: null, tasks: {checkpoint_tasks}}}}}
tables: {{embedding: {{dim: 9}}}}
mode: {mode}
model: {{name: deepfm, params: {{hidden: [16]}}}}
observe: {{progress_seconds: 0.5}}
"""


def job_file(
    directory: Path,
    data: Path,
    *,
    name: str = "job",
    servers: int = 1,
    workers: int = 1,
    epochs: int = 1,
    rendezvous: int = 60,
    restarts: int = 3,
    generations: int = 10,
    task_rows: int | str = "auto",
    checkpoint_tasks: int | str = "null",
    mode: str = "async",
) -> Path:
    """A small job; with many epochs it runs until something ends it."""
    file = directory / f"{name}.yaml"
    text = _JOB.format(
        name=name,
        servers=servers,
        workers=workers,
        epochs=epochs,
        rendezvous=rendezvous,
        restarts=restarts,
        generations=generations,
        task_rows=task_rows,
        checkpoint_tasks=checkpoint_tasks,
        mode=mode,
        data=data,
        output=directory / "runs",
    )
    file.write_text(text)
    return file


class Program:
    """One program of ours with its output in files."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        env: Mapping[str, str] | None = None,
        label: str = "program",
    ) -> None:
        self.out_file = directory / f"{label}.out"
        self.err_file = directory / f"{label}.err"
        outer = {name: value for name, value in os.environ.items() if name != "FLEETPS_TOKEN"}
        with self.out_file.open("wb") as out, self.err_file.open("wb") as err:
            self.popen = subprocess.Popen(
                command,
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                cwd=directory,
                env={**outer, "PYTHONPATH": str(ROOT), **(env or {})},
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self.out_file.read_text()

    @property
    def err(self) -> str:
        return self.err_file.read_text()

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait_for_output(self, text: str, seconds: float = START_SECONDS) -> None:
        def seen() -> bool:
            assert self.popen.poll() is None or text in self.out, self.everything()
            return text in self.out

        wait_until(seen, seconds, f"{text!r} in the output", self.everything)

    def exit_code(self, seconds: float = END_SECONDS) -> int:
        """Fails the test when the program does not end in time."""
        wait_until(lambda: self.popen.poll() is not None, seconds, "the end", self.everything)
        return int(self.popen.returncode)

    def everything(self) -> str:
        return f"--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Roles:
    """Processes of one job, each with its role in the environment."""

    def __init__(self, directory: Path, job: Path, coordinator: str) -> None:
        self._directory = directory
        self._job = job
        self._coordinator = coordinator

    def start(self, label: str, **env: str) -> Program:
        env = {"COORDINATOR": self._coordinator, **env}
        return Program(
            [*TRAIN, "--config", str(self._job)],
            self._directory,
            {name: value for name, value in env.items() if value},
            label=label,
        )


def unused() -> str:
    return str(free_port())


def wait_until(
    true: Callable[[], bool], seconds: float, what: str, more: Callable[[], str] = str
) -> None:
    """Poll until `true()`; fails the test at the deadline."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}\n{more()}"
        time.sleep(0.05)


def processes(*words: str) -> list[psutil.Process]:
    """Living processes of this test whose command line has all these words."""
    return [p for p in _ours() if all(word in _command(p) for word in words)]


def one(*words: str, env: str = "") -> psutil.Process:
    """The only such process; `env` such as "PADDLE_TRAINER_ID=1" picks among several."""
    name, _, value = env.partition("=")
    found = [p for p in processes(*words) if not env or p.environ().get(name) == value]
    assert len(found) == 1, [_command(p) for p in found]
    return found[0]


def kill(*words: str, env: str) -> None:
    """The one process; what it leaves behind is gone too when this returns."""
    victim = one(*words, env=env)
    children = victim.children()
    victim.kill()
    for process in (victim, *children):
        process.wait(20)


def kill_everything() -> None:
    """All processes of this test at once."""
    for process in processes():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    nobody_left()


def events(run: Path, kind: str) -> list[dict[str, str]]:
    """What happened in a job."""
    file = run / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    found = [json.loads(line) for line in lines]
    return [event for event in found if event["kind"] == kind]


def all_rows_are_trained(run: Path, epochs: int, rows: int) -> None:
    """`rows`: of an epoch, evaluation included."""
    found = json.loads((run / "result.json").read_text())["accounting"]
    assert found["total"] == found["done"] == epochs * rows
    assert found["leased"] == found["done"] + found["returned"]
    assert found["held"] == found["waiting"] == found["quarantined"] == 0
    assert found["repeated"] == found["returned"]


def nobody_left(seconds: float = END_SECONDS) -> None:
    """Fails the test if a process of it still lives at the deadline."""
    wait_until(
        lambda: not processes(),
        seconds,
        "the end of every process",
        lambda: "\n".join(f"{p.pid} {_command(p)}" for p in processes()),
    )


def _ours() -> Iterator[psutil.Process]:
    mark = os.environ[MARK]
    for process in psutil.process_iter():
        try:
            mine = process.environ().get(MARK) == mark
            if mine and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.Error:
            continue


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
