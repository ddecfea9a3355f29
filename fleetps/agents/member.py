"""What a server's and a worker's agent have in common: join, run a Paddle process, leave.

`run()` returns when the job is done; every other end is raised as the error whose sentence and
exit code this process then ends with.
"""

import logging
import math
import os
import time
from collections.abc import Callable
from typing import ClassVar, Literal

from fleet_config.errors import EXIT_TRY_AGAIN, EXIT_USER, Stopped, TryAgain
from fleet_config.job import Job
from fleet_config.roles import Role
from fleetps.agents.child_dir import ChildDirectory
from fleetps.agents.child_env import Place
from fleetps.agents.membership import OVER, Membership, NewGeneration, end_of
from fleetps.agents.paddle_launcher import launcher_pid
from fleetps.agents.paddle_process import label_of, start_paddle
from fleetps.agents.restarts import Restarts
from fleetps.agents.stop_signal import Leaves, StopSignal
from fleetps.coordinator.messages import JobState
from fleetps.coordinator.reports import MemberRole
from fleetps.system.logtail import tail
from fleetps.system.process import Child, end_all
from fleetps.system.rundir import RunDirectory
from fleetps.system.signals import StopRequest

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
# Between two questions to the coordinator: at the end of a job everybody asks at once.
_ASK_SECONDS = 0.3
# A peer's death often shows first as a crash here; its own agent gets this long to report it.
_ROOT_CAUSE_SECONDS = 2.0
# What a child gets that has no work worth finishing: the job has failed.
_LAST_GRACE_SECONDS = 1.0
# Within these the kernel has taken back even the memory of a large server.
_KILLED_SECONDS = 10.0


class Member:
    """One server or worker; the subclasses say what differs between the two."""

    kind: ClassVar[MemberRole]

    def __init__(
        self, job: Job, role: Role, coordinator: str, stop: StopRequest, patience: float
    ) -> None:
        """`patience`: seconds without an answer after which the coordinator counts as lost."""
        self.job = job
        self.role = role
        self.membership = Membership(job, self.kind, coordinator, patience)
        self.on_joined: Callable[[], None] = lambda: None
        self.on_tick: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None
        self._stop = stop
        self._signal = StopSignal(self.membership, role, stop)
        self._patience = patience
        self._restarts = Restarts(job.cluster.restarts)
        self._running: Child | None = None

    # -- what differs --

    def check_place(self) -> None:
        """Refuse, before joining, what could not work."""

    def place(self) -> Place:
        raise NotImplementedError

    def started(self, child: Child) -> None:
        """The child has just been started."""

    def watch(self) -> None:
        """Look at the running child; TryAgain says what is wrong with it."""

    def completes(self, code: int) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a child may end so while the job runs.

        A server never may: with exit code 0 too (its port was taken) it has failed.
        """
        return False

    def follows(self, code: int) -> bool:
        """Whether such an end may be the consequence of a peer's death, which is told first."""
        return code != EXIT_USER

    def starts_again(self, code: int) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a child that ended so is to be replaced."""
        return False

    def finish(self, child: Child) -> None:
        """The job is done: see the child to its end."""
        raise NotImplementedError

    def wind_down(self, child: Child) -> None:
        """The job stops on request, or this member leaves it: let the child end with care."""
        raise NotImplementedError

    def leave_job(self, child: Child | None) -> None:
        """This member alone was asked to stop: end its child, if it has one by now."""
        raise NotImplementedError

    # -- the life of a member --

    def run(self) -> None:
        try:
            with self._stop.interrupting():
                self.check_place()
                self._join()
            while not self._take_part():
                pass
        except Leaves:
            self._leave()
        except Stopped:
            if self._running is not None or not self.membership.joined:
                raise
            # The others wait for this member; they must not do so until their deadline.
            try:
                self._signal.heed(self.on_tick, begins_again=False)
            except Leaves:
                self._leave()
            else:
                raise
        finally:
            if self._running is not None:
                end_all([self._running], _LAST_GRACE_SECONDS)
            self.membership.leave()

    def _leave(self) -> None:
        _log.info(
            "%s was asked to stop (%s): it leaves the job", self.membership.name, self._stop.reason
        )
        self.leave_job(self._running)

    def _join(self) -> None:
        _log.info("joining %s at %s", self.job.job.name, self.membership.coordinator)
        self.membership.join(self._address, self.role.rank)
        self.on_joined()
        _log.info("joined as %s", self.membership.name)

    @property
    def _address(self) -> str:
        return self.role.endpoint or os.uname().nodename

    def _take_part(self) -> bool:
        """In one generation; whether the job is over."""
        try:
            with self._stop.interrupting():
                if not self._servers_come():
                    return True
            child = self._running = self._start()
            while self._supervise(child):
                self._restarts.again()
                child = self._running = self._start()
        except NewGeneration as news:
            _log.warning("%s of the job has begun: the Paddle process begins again", news)
            self._begin_again()
            return False
        return True

    def _begin_again(self) -> None:
        """End what belongs to the last generation, and register for the new one."""
        child, self._running = self._running, None
        if child is not None:
            # At once: what it has learnt is of no use, and it may hang in a call to a dead server.
            child.kill()
            child.wait(_KILLED_SECONDS)
        with self._stop.interrupting():
            self.check_place()
            self.membership.begin_again(self._address)

    def _servers_come(self) -> bool:
        """Wait for them; False: the job is done, and nobody is needed any more."""
        # The coordinator's own deadline comes first: it names who is missing, and tells everybody.
        deadline = time.monotonic() + self.job.cluster.deadlines.rendezvous + self._patience
        while not self.membership.servers:
            self.membership.check_coordinator()
            end = self.membership.end_heard()
            if end is not None and end.job == "done":
                return False
            if end is not None:
                raise end_of(end)
            if time.monotonic() > deadline:
                missing = ", ".join(self.membership.missing)
                raise TryAgain(f"{missing} did not join (cluster.deadlines.rendezvous)")
            self.membership.meet()
            self.on_tick()
            time.sleep(POLL_SECONDS)
        return True

    def _start(self) -> Child:
        child = start_paddle(self.job, self.place(), self.membership)
        self.started(child)
        return child

    def _supervise(self, child: Child) -> bool:
        """Whether the child ended and another is to be started; False: the job is over."""
        while (code := child.poll()) is None:
            if self._stop.signal is not None:
                return self._job_over(child, self._signal.heed(self.on_tick))
            end = self.membership.end_heard()
            if end is not None:
                return self._job_over(child, end)
            self.membership.check_coordinator()
            try:
                self.watch()
            except TryAgain as error:
                child.kill()
                end = self._replace(child, str(error), None)
                return True if end is None else self._job_over(child, end)
            self.on_tick()
            time.sleep(POLL_SECONDS)
        return self._child_ended(child, code)

    def _job_over(self, child: Child, end: JobState) -> Literal[False]:
        self.on_end()
        if end.job == "done":
            self.finish(child)
            return False
        if end.job == "stopping":
            self.wind_down(child)
        raise end_of(end)

    def _child_ended(self, child: Child, code: int) -> bool:
        self._restarts.died(useful=self.child_directory().worked())
        end = self.membership.end_now()
        if end is None and self.completes(code):
            end = self._wait_for_end()
        elif end is None and self.follows(code):
            # Who says itself that it has lost a peer comes after one that crashed at the same time.
            peer_lost = code == EXIT_TRY_AGAIN
            end = self._wait_until_over(_ROOT_CAUSE_SECONDS * (2 if peer_lost else 1))
        if end is None and self._stop.signal is not None:
            # Whoever stops a group of processes (systemd, a batch system) stops the child too.
            end = self._signal.heed(self.on_tick)
        if end is None and self.starts_again(code):
            reason = self.child_directory().reason(code, child.log)
            end = self._replace(child, reason, code)
        elif end is None:
            end = self._give_up(child, code)
        return True if end is None else self._job_over(child, end)

    def _replace(self, child: Child, reason: str, code: int | None) -> JobState | None:
        """Report the loss and wait a little; None: now another child may be started."""
        end = self.membership.lose(reason, tail(child.log), code)
        if end is not None:
            return end
        pause = self._restarts.pause()
        _log.warning("starting it again in %g s", pause)
        end = self._wait_until_over(pause)
        if end is None and self._stop.signal is not None:
            end = self._signal.heed(self.on_tick)
        return end

    def _give_up(self, child: Child, code: int) -> JobState:
        """The job's end; TryAgain: the others go on, and this member isn't needed to the end."""
        reason = self.child_directory().reason(code, child.log)
        if times := self._restarts.in_a_row:
            reason += (
                f"; it had been started again {times} time{'s' * (times > 1)} (cluster.restarts)"
            )
        answer = self._fail(child, reason, code)
        if answer.job in OVER:
            return answer
        sentence = f"{self.membership.name}: {reason}; the job goes on without it"
        if launcher_pid(os.environ) is None:
            raise TryAgain(sentence)
        _log.warning("%s; waiting for its end, because the launcher would end it all", sentence)
        return self._wait_until_over(math.inf) or self.membership.stop_job(self._stop.reason)

    def _fail(self, child: Child, reason: str, code: int | None) -> JobState:
        return self.membership.fail(reason, tail(child.log), code)

    def _wait_for_end(self) -> JobState | None:
        """This member has nothing left to do; the others may need a moment more.

        The coordinator gives them cluster.deadlines.stop seconds, and may itself be away for a
        while. None: it was not the end.
        """
        self.membership.say("exited")
        end = self._wait_until_over(self.job.cluster.deadlines.stop + self._patience)
        if end is None and self._stop.signal is not None:
            end = self._signal.heed(self.on_tick)
        return end

    def _wait_until_over(self, seconds: float) -> JobState | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._stop.signal is None:
            end = self.membership.end_now()
            if end is not None:
                return end
            self.membership.check_coordinator()
            self.on_tick()
            time.sleep(_ASK_SECONDS)
        return None

    def child_directory(self) -> ChildDirectory:
        return ChildDirectory(RunDirectory(self.job.run_dir).work(label_of(self.membership)))
