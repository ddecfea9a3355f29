"""Child processes: start them in a group of their own, watch them, and end all of the group.

Start children from the main thread only: the kernel's parent-death signal follows the *thread*
that forked.
"""

import contextlib
import logging
import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fleet_config.errors import EXIT_STOPPED

_log = logging.getLogger(__name__)
_GUARD = Path(__file__).with_name("guard.py")
_ROOT = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.05
# After SIGKILL only a process stuck in the kernel (dead disk) is left; nobody can end that one.
_KILL_SECONDS = 5.0


class Child:
    """A running command whose output goes to a log file and whose life ends with ours."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        guard = [
            sys.executable,
            "-I",
            "-S",
            str(_GUARD),
            str(os.getpid()),
            str(int(signal.SIGKILL)),
        ]
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_finding_us(os.environ if env is None else env),
                cwd=cwd,
                start_new_session=True,
            )
        _log.debug("started %s as process %d, output in %s", name, self.pid, log)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self) -> int | None:
        """The exit code (negative = the signal that killed it), or None while the command runs."""
        if self._popen.returncode is None and os.waitid(
            os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
        ):
            # Dead but not yet reaped: its id still names this group and no other, so what it left
            # behind can go.
            self._kill_group()
        return self._popen.poll()

    def wait(self, seconds: float) -> int | None:
        """Wait at most `seconds` for the end of the command."""
        deadline = time.monotonic() + seconds
        while (code := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return code

    def terminate(self) -> None:
        """Ask the command to end. Only itself: its helpers go on while it finishes its work."""
        if self.poll() is None:
            # Not Popen.send_signal: that one reaps, and then the group can't be named any more.
            os.kill(self.pid, signal.SIGTERM)

    def abort(self, seconds: float) -> None:
        """End the command with the stacks of its threads in its log, if it can within `seconds`.

        It can, whatever it hangs in, if it has Python's faulthandler on and isn't stopped.
        """
        if self.poll() is None:
            os.kill(self.pid, signal.SIGABRT)
            self.wait(seconds)
            self.kill()

    def kill(self) -> None:
        """End the whole group now."""
        if self.poll() is None:
            self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def _finding_us(env: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a child in another directory finds this package too.

    Installed, it does anyway; run from a checkout, only the first process has it on its path.
    """
    if str(_ROOT) in site.getsitepackages():
        return dict(env)
    paths = [str(_ROOT), *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    return {**env, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def end_all(
    children: Sequence[Child], grace: float, hurry: Callable[[], bool] = lambda: False
) -> None:
    """SIGTERM to every child, at most `grace` seconds for all, then SIGKILL to their groups.

    `hurry` is asked meanwhile whether to stop being patient.
    """
    for child in children:
        child.terminate()
    deadline = time.monotonic() + grace
    while not hurry() and time.monotonic() < deadline and not _ended(children):
        time.sleep(_POLL_SECONDS)
    for child in children:
        if child.poll() is None:
            _log.warning("%s did not end after SIGTERM: killed", child.name)
            child.kill()
    for child in children:
        child.wait(_KILL_SECONDS)


def _ended(children: Sequence[Child]) -> bool:
    return all(child.poll() is not None for child in children)


_SIGNAL_HINTS = {
    signal.SIGKILL: "killed by SIGKILL (by hand, or by the kernel when memory ran out)",
    signal.SIGSEGV: "crashed with SIGSEGV (invalid memory access)",
    signal.SIGABRT: "crashed with SIGABRT (a check inside Paddle failed)",
    signal.SIGFPE: "crashed with SIGFPE (arithmetic error)",
    signal.SIGBUS: "crashed with SIGBUS (often a full /dev/shm or disk)",
    signal.SIGTERM: "ended by SIGTERM",
}


def describe_exit(code: int) -> str:
    """An exit code in words: `exit code 3`, `crashed with SIGSEGV (...)`."""
    if code == 0:
        return "exit 0 before the job was done"
    if code == EXIT_STOPPED:
        return "stopped by SIGTERM"
    if code > 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code)
    except ValueError:
        return f"killed by signal {-code}"
    return _SIGNAL_HINTS.get(name, f"killed by {name.name}")
