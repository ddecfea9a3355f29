"""The agent of a worker: its Paddle process works by itself, and ends when the job is finished."""

import logging
import signal
from typing import ClassVar

from fleet_config.errors import EXIT_STOPPED, EXIT_USER, FleetError, Stopped
from fleet_config.job import Job
from fleetps.agents.child_env import Place
from fleetps.agents.load import Load
from fleetps.agents.member import Member
from fleetps.agents.restart_policy import restart_policy
from fleetps.coordinator.reports import MemberRole
from fleetps.memory import check_worker_memory
from fleetps.system.ports import unreachable
from fleetps.system.process import Child, end_all
from fleetps.system.pulse_file import Silence, give_time

_log = logging.getLogger(__name__)

# Of cluster.deadlines.stop; the rest is for the servers, which end after the workers.
_SHARE_OF_STOP = 0.8
# Until a process that hangs has written the stacks of its threads.
_STACKS_SECONDS = 2.0
# When it leaves after a checkpoint; what it has learnt since then is of no use.
_LEAVING_SECONDS = 1.0
# Paddle wants a port to be named; a worker opens none there.
_UNUSED_PORT = "0"


class WorkerAgent(Member):
    kind: ClassVar[MemberRole] = "worker"
    _child: Child
    _load: Load
    _silence: Silence

    def check_place(self) -> None:
        check_worker_memory(self.job, workers=1)

    def place(self) -> Place:
        return Place(
            kind=self.kind,
            rank=self.membership.rank,
            host=self.role.endpoint or "127.0.0.1",
            port=_UNUSED_PORT,
            servers=self.membership.servers,
            workers=self.job.cluster.workers,
        )

    def started(self, child: Child) -> None:
        self._child = child
        self._load = Load(self.membership, child.pid)
        self._silence = Silence(self.child_directory().path)
        deadlines = self.job.cluster.deadlines
        # In a later generation what it begins with may not be known yet.
        restores = self.membership.restore or self.membership.generation
        values = deadlines.checkpoint if restores else deadlines.barrier
        start = deadlines.rendezvous + deadlines.server_start + values
        give_time(self.child_directory().path, start + deadlines.first_step)
        self.membership.say("running")

    def watch(self) -> None:
        """End a child that shows no sign of life, whatever it hangs in; it counts as crashed."""
        silence = self._silence.longer_than(self.job.cluster.deadlines.step)
        if silence:
            lost = unreachable(self.membership.servers)
            reach = f"; it can't reach {lost}" if lost else ""
            self.child_directory().say(
                f"its Paddle process was ended: it had shown no sign of life for {silence:.0f} s "
                "(cluster.deadlines.step); it was stopped, or hung inside Paddle, and then the "
                f"stacks of its threads are in its log{reach}"
            )
            self._child.abort(_STACKS_SECONDS)
        self._load.tell()

    def completes(self, code: int) -> bool:
        """With 0 it ends when the coordinator has no more work for anybody."""
        return code == 0

    def follows(self, code: int) -> bool:
        """Nobody waits for a worker that died while others can go on without it.

        In mode sync the others' processes crash with it, and the one that was killed is to be named
        first; one that was stopped may be so with the whole job.
        """
        if code in (EXIT_USER, -signal.SIGKILL):
            return False
        stopped = code in (EXIT_STOPPED, -signal.SIGTERM)
        return stopped or "sync" in self.job.mode_names or not self.starts_again(code)

    def starts_again(self, code: int) -> bool:
        return code not in (0, EXIT_USER) and self._restarts.left

    def finish(self, child: Child) -> None:
        code = child.wait(self.job.cluster.deadlines.stop)
        if code != 0:
            # The results are safe with the coordinator and the servers: no reason to fail.
            _log.warning("the Paddle process did not end cleanly after the job was done")
        end_all([child], 0)

    def leave_job(self, child: Child | None) -> None:
        """The others go on without it; in mode sync they begin again, best from a checkpoint.

        That is no failure. But who starts workers again is not to take it for the end of the job.
        """
        if child is not None:
            self._end_while_others_go_on(child)
        if restart_policy():
            raise Stopped(f"{self.membership.name} was asked to stop ({self._stop.reason})")

    def _end_while_others_go_on(self, child: Child) -> None:
        if self._in_sync():
            self.membership.wait_for_checkpoint(f"{self.membership.name} was asked to stop")
            end_all([child], _LEAVING_SECONDS)
        else:
            self.wind_down(child)

    def _in_sync(self) -> bool:
        try:
            return "sync" in self.job.mode_names and self.membership.client.status().mode == "sync"
        except FleetError as error:
            _log.debug("no status: %s", error)
            return False

    def wind_down(self, child: Child) -> None:
        """It finishes its batch, pushes what it has learnt and returns its tasks."""
        end_all([child], batch_seconds(self.job))


def batch_seconds(job: Job) -> float:
    """How long a worker that was asked to stop may take to finish its batch."""
    return job.cluster.deadlines.stop * _SHARE_OF_STOP
