"""python -m fleetps.coordinator --job job.json --bind host:port [--new | --again]"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fleet_config.errors import FleetError, UserError
from fleet_config.job import Job
from fleetps.coordinator.access import read_token
from fleetps.coordinator.serve import serve
from fleetps.data.dataset import load_dataset
from fleetps.observe.logs import set_up_logging
from fleetps.system.memory import keep_few_arenas

_log = logging.getLogger(__name__)
_ARENAS = 2  # it answers in dozens of threads for as long as the job lasts, mostly one at a time


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fleetps.coordinator", description=__doc__)
    parser.add_argument("--job", type=Path, required=True, help="the checked job as JSON")
    parser.add_argument("--bind", required=True, metavar="HOST:PORT", help="port 0: any free one")
    parser.add_argument(
        "--new", action="store_true", help="set the state of an earlier run aside, begin anew"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="all processes of the job were ended: go on from its last checkpoint",
    )
    parser.add_argument(
        "--stay", action="store_true", help="a job that is done stays so, and this goes on serving"
    )
    parser.add_argument(
        "--restarted",
        action="store_true",
        help="only this process died: a job that is over stays so",
    )
    options = parser.parse_args(arguments)
    set_up_logging("text", "coordinator")
    keep_few_arenas(_ARENAS)
    try:
        job = _read_job(options.job)
        set_up_logging(job.observe.log_format, "coordinator")
        return serve(
            job,
            load_dataset(job.data.path),
            bind=options.bind,
            token=read_token(os.environ),
            new=options.new,
            again=options.again,
            stays=options.stay,
            restarted=options.restarted,
        )
    except FleetError as error:
        _log.error("%s", error)
        return error.exit_code


def _read_job(path: Path) -> Job:
    try:
        return Job.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: the job cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path}: not a job written by this version of FleetPS") from error


if __name__ == "__main__":
    sys.exit(main())
