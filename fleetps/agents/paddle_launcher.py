"""Living under Paddle's own launchers.

The older one (`--worker_num`) forwards no signal, looks at no exit code, does not notice the death
of a server and returns 0 after every failure. So its processes watch their parent, and one that
failed ends it with SIGTERM: the others hear of that, and the shell sees 143, the only answer other
than 0 that can be had from this launcher. It returns as soon as its workers have ended: so they
wait for server 0, beside which the coordinator has its end, and the next job can begin at once.
"""

import ctypes
import logging
import os
import signal
from collections.abc import Mapping

import psutil

from fleetps.system.rundir import RunDirectory

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_LAUNCHERS = ("fleetrun", "paddle.distributed.launch", "paddle.distributed.fleet.launch")
# Only the newer launcher, which does look at exit codes, sets this.
_NEWER_LAUNCHER = "PADDLE_ROLE"
# More than that process takes to end its coordinator.
_HOST_SECONDS = 15.0


def launcher_pid(environ: Mapping[str, str]) -> int | None:
    """Paddle's launcher, if it is what started this process."""
    if "TRAINING_ROLE" not in environ:
        return None
    parent = os.getppid()
    try:
        command = psutil.Process(parent).cmdline()
    except psutil.Error:
        return None
    named = (os.path.basename(word).removesuffix(".py") for word in command)  # noqa: PTH119
    return parent if any(word in _LAUNCHERS for word in named) else None


def follow(parent: int) -> None:
    """Ask the kernel for a SIGTERM when the launcher dies, which nobody else would send."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def outlast_host(run: RunDirectory, environ: Mapping[str, str]) -> None:
    """Of a worker under the older launcher: the process that holds the run is to end first."""
    if launcher_pid(environ) is not None and _NEWER_LAUNCHER not in environ:
        run.wait_until_free(_HOST_SECONDS)


def report_failure(parent: int, environ: Mapping[str, str]) -> None:
    """Make the older launcher fail because this process did."""
    if _NEWER_LAUNCHER not in environ and os.getppid() == parent:
        _log.error("ending Paddle's launcher, which would return 0 after this failure")
        os.kill(parent, signal.SIGTERM)
