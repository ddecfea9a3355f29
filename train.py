#!/usr/bin/env python3
"""The one program of every container: what it does follows from the environment.

    python train.py --config conf/quickstart.yaml                    no role: trains locally
    ROLE=SERVER COORDINATOR=host:port python train.py --config ...   a server
    ROLE=WORKER COORDINATOR=host:port python train.py --config ...   a worker
    ROLE=COORDINATOR COORDINATOR=host:port python train.py --config ...
    fleetrun --server_num=2 --trainer_num=2 train.py --config ...    Paddle's launcher sets roles

docs/operations.md has the exit codes and signals, docs/environment.md all variables.
"""

import sys

try:
    from fleetps.main import main
except ModuleNotFoundError as error:
    sys.stderr.write(
        f"the Python package {error.name} is missing: make setup, then . .venv/bin/activate\n"
    )
    sys.exit(2)
except KeyboardInterrupt:
    sys.stderr.write("stopped by Ctrl-C\n")
    sys.exit(143)

if __name__ == "__main__":
    sys.exit(main())
