"""What every Paddle child process does at its start and end."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import paddle

from fleet_config.errors import EXIT_OK, EXIT_TRY_AGAIN, EXIT_USER, FleetError, TryAgain
from fleet_config.job import Job
from fleetps.data.dataset import Dataset, load_dataset
from fleetps.training.feed import DataError

JOB_FILE = "job.json"
ERROR_FILE = "error.json"
EXIT_BUG = 1


def load(rank: int) -> tuple[Job, Dataset]:
    """Job and data set of this child; seeds every generator with the job's seed + rank."""
    paddle.enable_static()
    job = Job.model_validate_json(Path(JOB_FILE).read_text())
    seed = job.job.seed + rank
    random.seed(seed)
    np.random.seed(seed)
    paddle.seed(seed)
    return job, load_dataset(job.data.path)


def run(body: Callable[[], None]) -> NoReturn:
    """Run a child's body and end the process at once, with the exit code of the design.

    Never by a normal return: Paddle's threads crash the interpreter's own shutdown (signal 11). A
    mistake or a lost peer is left as one sentence in error.json for the agent.
    """
    # Paddle has set up the root logger already, for warnings.
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(name)s %(message)s",
        stream=sys.stderr,
        force=True,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    faulthandler.enable()
    # Each branch ends inside its `except`: after it, the traceback's objects die, and a Paddle data
    # set that is being read aborts the process in its destructor.
    try:
        body()
    except (FleetError, DataError) as error:
        leave(error)
    except BaseException:
        traceback.print_exc()
        end(EXIT_BUG)
    end(EXIT_OK)


def leave(error: FleetError | DataError) -> NoReturn:
    """End the process with a sentence for the agent."""
    try_again = isinstance(error, TryAgain)
    kind, code = ("try_again", EXIT_TRY_AGAIN) if try_again else ("user", EXIT_USER)
    with contextlib.suppress(OSError):  # a full disk must not keep it from ending
        Path(ERROR_FILE).write_text(json.dumps({"kind": kind, "message": str(error)}))
    logging.getLogger(__name__).error("%s", error)
    end(code)


def end(code: int) -> NoReturn:
    """End the process without Python's shutdown."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
