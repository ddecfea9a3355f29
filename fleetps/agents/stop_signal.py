"""What SIGTERM to a server's or worker's agent means: the whole job stops, or only this member."""

import os
import time
from collections.abc import Callable

from fleet_config.roles import Role
from fleetps.agents.membership import OVER, Membership, NewGeneration
from fleetps.agents.paddle_launcher import launcher_pid
from fleetps.coordinator.messages import JobState
from fleetps.system.signals import StopRequest

_ASK_SECONDS = 0.3
# Of the ten seconds that preempted machines and containers usually have.
_JOB_STOPS_SECONDS = 0.5


class Leaves(Exception):
    """This member alone was asked to stop: no error, it takes the agent out of any wait."""


class StopSignal:
    def __init__(self, membership: Membership, role: Role, stop: StopRequest) -> None:
        self._membership = membership
        self._role = role
        self._stop = stop
        # Asked now, as the older launcher is dead when its processes get the signal.
        self._launched = launcher_pid(os.environ) is not None

    def heed(self, tick: Callable[[], None], *, begins_again: bool = True) -> JobState:
        """The end of the job, once its last checkpoint is taken; or Leaves.

        `tick` is called while that is waited for.
        `begins_again`: a new generation takes the agent out of this too (NewGeneration). Not where
        its process has ended already: it would only begin another one to end it.
        """
        if self._for_one(begins_again):
            raise Leaves
        end: JobState | None = self._membership.stop_job(self._stop.reason)
        while end is None or end.job not in OVER:
            self._membership.check_coordinator()
            tick()
            time.sleep(_ASK_SECONDS)
            end = self._end_now(begins_again)
        return end

    def _end_now(self, begins_again: bool) -> JobState | None:
        try:
            return self._membership.end_now()
        except NewGeneration:
            if begins_again:
                raise
            return None

    def _for_one(self, begins_again: bool) -> bool:
        """Whether the signal was for this member, and not for the whole job.

        Paddle's launchers stop a job so. Who stops it with all its processes at once (a batch
        system, Kubernetes) stops the coordinator too, which says so in the same moment.
        """
        if self._launched or self._role.hosts_coordinator:
            return False
        deadline = time.monotonic() + _JOB_STOPS_SECONDS
        while time.monotonic() < deadline:
            if self._end_now(begins_again) is not None or self._membership.ending:
                return False
            time.sleep(_ASK_SECONDS / 2)
        return True
