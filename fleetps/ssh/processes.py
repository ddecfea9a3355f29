"""A job's processes on this host: started detached, found again by pid file, ended by pid.

<run directory>/processes/<host>/ has, of each: worker-0.pid, and worker-0.exit with its exit code
once it has ended. Its log is logs/worker-0.agent.log, as under `fleetps launch`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from fleet_config.errors import TryAgain, UserError
from fleet_config.job import Job, load_job
from fleetps.agents.fleet import ROLE_VARIABLES
from fleetps.coordinator.access import TOKEN, TOKEN_FILE, read_token
from fleetps.coordinator.reports import EpochResult
from fleetps.coordinator.runfiles import ADDRESS_FILE, KEY_FILE
from fleetps.observe.logs import message_of
from fleetps.observe.words import epoch_line
from fleetps.ssh.words import COORDINATOR, ProcessState, Wanted
from fleetps.system.logtail import tail
from fleetps.system.rundir import RunDirectory

_START_SECONDS = 10.0
_KILL_SECONDS = 5.0
# Between the end of a process and the moment in which its exit code is written down.
_KEEPER_SECONDS = 0.5
_POLL_SECONDS = 0.05

# The shell stays to keep the exit code; the process itself is the one whose id is written down.
_KEEPER = '"$@" & echo $! >"$0.new" && mv "$0.new" "$0.pid"; wait $!; echo $? >"$0.exit"'


class Processes:
    def __init__(self, name: str, host: str) -> None:
        self._name = name
        self._host = host
        self._job_file = Path("jobs", f"{name}.json").absolute()
        self._job: Job | None = load_job(self._job_file) if self.known else None

    @property
    def known(self) -> bool:
        """Whether this job was ever started here."""
        return self._job_file.exists()

    @property
    def run(self) -> RunDirectory:
        if self._job is None:
            raise UserError(f"{self._name} was never started in {Path.cwd()}; run start")
        return RunDirectory(self._job.run_dir)

    def log(self, name: str) -> Path:
        return self.run.logs / f"{name}.agent.log"

    def token(self) -> str | None:
        """The token in use; None before the first start and after stop."""
        file = self.run.path / KEY_FILE if self.known else None
        return read_token({TOKEN_FILE: str(file)}) if file is not None and file.exists() else None

    # -- starting --

    def prepare(self, job: str, token: str) -> None:
        """Write down what the processes will read: the job file and the token."""
        self._write(self._job_file, job, 0o644)
        self._job = load_job(self._job_file)
        run = self.run
        run.create()
        with run.writing():
            run.logs.mkdir(exist_ok=True)
            self._directory.mkdir(parents=True, exist_ok=True)
            self._write(run.path / KEY_FILE, f"{token}\n", 0o600)

    def checkpoints(self) -> str:
        """Where the job's checkpoints will be, made now; "" if it makes none."""
        if self._job is None or not any(self._job.checkpoint.every.model_dump().values()):
            return ""
        directory = self._job.checkpoint_dir
        with self.run.writing():
            directory.mkdir(parents=True, exist_ok=True)
        return str(directory)

    def start(self, wanted: Iterable[Wanted]) -> None:
        """Start those that don't run yet, after `prepare`."""
        for process in wanted:
            if self.living(process.name) is None:
                self._start_one(process)

    def _start_one(self, wanted: Wanted) -> None:
        for suffix in ("pid", "exit"):
            self._file(wanted.name, suffix).unlink(missing_ok=True)
        base = str(self._directory / wanted.name)
        command = [sys.executable, "-m", "fleetps.main", "--config", str(self._job_file)]
        with self.run.writing(), self.log(wanted.name).open("ab") as log:
            keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, base, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(wanted),
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._file(wanted.name, "pid").exists():
            if keeper.poll() is not None or time.monotonic() > deadline:
                raise TryAgain(f"{wanted.name} could not be started; see {self.log(wanted.name)}")
            time.sleep(_POLL_SECONDS)

    def _environment(self, wanted: Wanted) -> dict[str, str]:
        kept = {name: v for name, v in os.environ.items() if not name.startswith(ROLE_VARIABLES)}
        kept.pop(TOKEN, None)
        return {**kept, **wanted.env, TOKEN_FILE: str(self.run.path / KEY_FILE)}

    def _write(self, file: Path, text: str, mode: int) -> None:
        """By rename, and never readable for anybody else on the way."""
        new = file.with_name(f".{file.name}.{self._host}.new")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as out:
                out.write(text)
            new.replace(file)
        except OSError as error:
            raise UserError(
                f"can't write {file}: {error.strerror}; make room there, or let it be written"
            ) from None

    # -- looking --

    @property
    def _directory(self) -> Path:
        return self.run.path / "processes" / self._host

    def _file(self, name: str, suffix: str) -> Path:
        return self._directory / f"{name}.{suffix}"

    def names(self) -> list[str]:
        return sorted(file.stem for file in self._directory.glob("*.pid")) if self.known else []

    def living(self, name: str) -> psutil.Process | None:
        """The process that plays this part, whatever else may have got its process id since."""
        role, _, rank = name.partition("-")
        part = {"ROLE": role.upper(), **({f"{role.upper()}_INDEX": rank} if rank else {})}
        try:
            process = psutil.Process(int(self._file(name, "pid").read_text(encoding="ascii")))
            same = part.items() <= process.environ().items()
            ours = str(self._job_file) in process.cmdline()
        except (OSError, ValueError, psutil.Error):
            return None
        return process if same and ours and process.is_running() else None

    def coordinator_runs(self) -> bool:
        return self.known and self.living(COORDINATOR) is not None

    def coordinator_address(self) -> str:
        try:
            return (self.run.path / ADDRESS_FILE).read_text(encoding="utf-8").strip()
        except OSError:
            raise TryAgain("the coordinator is not ready yet") from None

    def states(self) -> tuple[ProcessState, ...]:
        return tuple(self._state(name) for name in self.names())

    def _state(self, name: str) -> ProcessState:
        process = self.living(name)
        if process is not None:
            coordinator = ""
            with suppress(psutil.Error):  # it may end at this moment
                coordinator = process.environ().get("COORDINATOR", "")
            return ProcessState(name=name, pid=process.pid, running=True, coordinator=coordinator)
        pid, code = self._number(name, "pid"), self._exit_code(name)
        last = tail(self.log(name), 1) if code != 0 else []
        return ProcessState(
            name=name,
            pid=pid or 0,
            running=False,
            code=code,
            last=message_of(last[0]) if last else "",
        )

    def _exit_code(self, name: str) -> int | None:
        """None: its keeper was killed with it, or the machine went down."""
        deadline = time.monotonic() + _KEEPER_SECONDS
        while (code := self._number(name, "exit")) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return code

    def _number(self, name: str, suffix: str) -> int | None:
        try:
            return int(self._file(name, suffix).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def result(self) -> str:
        """The last epoch's line of a job that is done and whose coordinator ran here."""
        if self._number(COORDINATOR, "exit") != 0 or self.living(COORDINATOR) is not None:
            return ""
        try:
            document = json.loads(self.run.result_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ""
        epochs = [EpochResult.model_validate(epoch) for epoch in document["history"]]
        return epoch_line(epochs[-1], len(epochs)) if epochs else "no epochs"

    # -- ending --

    def end(self, role: str, grace: float) -> None:
        """SIGTERM to all of a role, at most `grace` seconds, then SIGKILL to what is left.

        What they had started goes with them (system/guard.py). Once nothing runs any more, the
        token goes too.
        """
        names = [name for name in self.names() if name.partition("-")[0] == role]
        left = [process for name in names if (process := self.living(name)) is not None]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        _, left = psutil.wait_procs(left, timeout=grace)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=_KILL_SECONDS)
        if not any(self.living(name) for name in self.names()):
            (self.run.path / KEY_FILE).unlink(missing_ok=True)
