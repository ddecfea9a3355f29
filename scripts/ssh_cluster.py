#!/usr/bin/env python3
"""A job on the machines that its job file lists under `hosts`, over ssh.

    python scripts/ssh_cluster.py --config job.yaml sync      the code, on every host
    python scripts/ssh_cluster.py --config job.yaml start     coordinator, servers and workers
    python scripts/ssh_cluster.py --config job.yaml status
    python scripts/ssh_cluster.py --config job.yaml logs --role worker --rank 0 --follow
    python scripts/ssh_cluster.py --config job.yaml stop

Needs asyncssh here (pip install 'asyncssh>=2.18,<3'), and on the hosts sshd and a Python with the
dependencies of FleetPS. docs/operations.md has the rest.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The code that is sent is the code that sends it.
sys.path.insert(0, str(ROOT))

try:
    from fleet_config.errors import UserError
    from fleetps.exits import exit_code_of
except ModuleNotFoundError as error:
    sys.stderr.write(
        f"the Python package {error.name} is missing: make setup, then . .venv/bin/activate\n"
    )
    sys.exit(2)


def main() -> int:
    """Every error becomes its sentence and its exit code."""

    def run() -> int | None:
        try:
            from fleetps.ssh.commands import cli  # noqa: PLC0415 - the one extra that it needs
        except ModuleNotFoundError as error:
            raise UserError(
                f"the Python package {error.name} is missing: pip install 'asyncssh>=2.18,<3'"
            ) from None
        code = cli.main(prog_name="ssh_cluster.py", standalone_mode=False)
        return code if isinstance(code, int) else None

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
