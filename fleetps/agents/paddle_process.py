"""Starting a member's Paddle process."""

import logging
import os
import sys

from fleet_config.job import Job
from fleetps.agents.child_dir import ChildDirectory
from fleetps.agents.child_env import Place, paddle_environment
from fleetps.agents.membership import Membership
from fleetps.system.process import Child
from fleetps.system.rundir import RunDirectory

_log = logging.getLogger(__name__)

# Beyond its agent's patience with the coordinator, so that the agent speaks first.
_LONGER_SECONDS = 5.0


def label_of(membership: Membership) -> str:
    """Of the process, in names of files: `worker-1`."""
    return f"{membership.kind}-{membership.rank}"


def start_paddle(job: Job, place: Place, membership: Membership) -> Child:
    """Its program is that of the member's kind, its directory the one of its label."""
    run, label = RunDirectory(job.run_dir), label_of(membership)
    work = ChildDirectory(run.work(label))
    work.prepare(job)
    child = Child(
        membership.name,
        [sys.executable, "-m", f"fleetps.training.{membership.kind}"],
        log=run.logs / f"{label}.log",
        env=paddle_environment(
            os.environ,
            place,
            coordinator=membership.coordinator,
            patience=membership.patience + _LONGER_SECONDS,
            instance=membership.instance,
            generation=membership.generation,
        ),
        cwd=work.path,
    )
    _log.info("started Paddle as process %d; its output: %s", child.pid, child.log)
    return child
