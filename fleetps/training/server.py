"""The server child: `python -m fleetps.training.server` in a directory with job.json.

It holds table shards until it is told to stop; it can run no Python meanwhile, so its agent watches
it from outside, and counts the rows of the tables that it finds in tables.json.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from fleetps import paddle_compat  # first: checks the installation

from fleetps.training import build, child, geo  # isort: skip

from paddle.distributed import fleet


def serve() -> None:
    """Serve until told to stop."""
    job, dataset = child.load(int(os.environ.get("FLEETPS_RANK", "0")))
    paddle_compat.init_role()
    build.build_server(geo.server_job(job) if "geo" in job.mode_names else job, dataset)
    Path("tables.json").write_text(json.dumps(paddle_compat.sparse_tables()))
    fleet.init_server()
    fleet.run_server()


if __name__ == "__main__":
    child.run(serve)
