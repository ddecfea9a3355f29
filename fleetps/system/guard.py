"""Run a command that cannot outlive the process which started it (Linux).

    python -I -S guard.py PARENT_PID SIGNAL COMMAND...

The kernel sends SIGNAL to the command when its parent dies, also by SIGKILL. This is a program of
its own, not a `preexec_fn`: the parent has threads (heartbeat), and Python code between fork and
exec in a threaded process can deadlock. The process id stays the same across exec, and so does the
request to the kernel.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    parent, signum, command = int(argv[1]), int(argv[2]), argv[3:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() != parent:
        # The parent died before the request was made, so no signal will ever come.
        sys.exit(f"the process that started {command[0]} is gone")
    os.execvp(command[0], command)  # noqa: S606 (no shell is what we want)


if __name__ == "__main__":
    main(sys.argv)
