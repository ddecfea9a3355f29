#!/usr/bin/env python3
"""A job on the machines that its job file lists under `hosts`, over ssh.

    python scripts/ssh_cluster.py --config job.yaml sync      the code, on every host
    python scripts/ssh_cluster.py --config job.yaml start     coordinator, servers and workers
    python scripts/ssh_cluster.py --config job.yaml status
    python scripts/ssh_cluster.py --config job.yaml logs --role worker --rank 0 --follow
    python scripts/ssh_cluster.py --config job.yaml stop

Needs asyncssh here (pip install 'fleetps[ssh]'), and on the hosts sshd and a Python with FleetPS's
dependencies. docs/operations.md has the rest.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The code that is sent is the code that sends it.
sys.path.insert(0, str(ROOT))

try:
    from fleetps.exits import exit_code_of
except ModuleNotFoundError as error:
    sys.stderr.write(
        f"the Python package {error.name} is missing: make setup, then . .venv/bin/activate\n"
    )
    sys.exit(2)


def main() -> int:
    """Every error becomes its sentence and its exit code."""

    def run() -> int | None:
        from fleetps.ssh.commands import cli  # noqa: PLC0415 - may say that asyncssh is missing

        code = cli.main(prog_name="ssh_cluster.py", standalone_mode=False)
        return code if isinstance(code, int) else None

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
