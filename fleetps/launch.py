"""`fleetps launch`: a whole job as processes of this machine, under one display.

The launcher starts the coordinator and one agent per server and worker, each with its role in the
environment like a container. It trains nothing itself; when anything ends that should not, or on
Ctrl-C, it ends everything.
"""

import logging
import os
import secrets
import signal
import time

from fleet_config.errors import (
    EXIT_OK,
    EXIT_STOPPED,
    EXIT_USER,
    FleetError,
    Stopped,
    TryAgain,
    UserError,
)
from fleet_config.job import Job
from fleetps.agents.fleet import Agent, Fleet
from fleetps.agents.hosting import HostedCoordinator
from fleetps.agents.membership import OVER, end_of, state_of
from fleetps.agents.worker import batch_seconds
from fleetps.coordinator.access import with_token
from fleetps.coordinator.messages import JobState
from fleetps.coordinator.runfiles import KEY_FILE
from fleetps.exits import logged
from fleetps.installation import check_installation
from fleetps.memory import check_worker_memory
from fleetps.newrun import new_run, shown
from fleetps.observe.display import Display
from fleetps.observe.job_view import JobView
from fleetps.observe.logs import set_up_logging
from fleetps.system.logtail import tail
from fleetps.system.rundir import RunDirectory
from fleetps.system.signals import StopRequest

_log = logging.getLogger(__name__)

# In the environment of all processes of one launch, so that what is left of it could be found.
RUN_VARIABLE = "FLEETPS_RUN"

_POLL_SECONDS = 0.1
# Beyond what a worker gets to finish its batch, before its agent is killed.
_AGENT_SECONDS = 1.5
_FAILED_SECONDS = 5.0


def run(job: Job) -> int:
    """Train the job; returns EXIT_OK. Any other end is raised, or logged where lines are JSON."""
    as_json = job.observe.log_format == "json"
    # Text for people comes from the display; the log is for what it doesn't say.
    set_up_logging(job.observe.log_format, "launch", logging.INFO if as_json else logging.WARNING)
    try:
        check_installation()
        with (
            StopRequest() as stop,
            shown(job) as display,
            new_run(job, display, stop, goes_on=True) as directory,
        ):
            check_worker_memory(job, job.cluster.workers)
            _Launch(job, directory, display, stop).run()
    except FleetError as error:
        if not as_json:
            raise
        return logged(error, _log)
    return EXIT_OK


class _Launch:
    def __init__(
        self, job: Job, directory: RunDirectory, display: Display, stop: StopRequest
    ) -> None:
        self._job = job
        self._directory = directory
        self._display = display
        self._stop = stop
        self._key_file = directory.path / KEY_FILE
        with directory.writing():
            self._key_file.unlink(missing_ok=True)  # a killed launcher has left its own
            env = with_token(os.environ, self._key_file)
        env[RUN_VARIABLE] = f"{job.job.name}-{secrets.token_hex(4)}"
        self._env = env
        self._host = HostedCoordinator(job, env)
        self._generation = 0

    def run(self) -> None:
        fleet: Fleet | None = None
        try:
            with self._stop.interrupting():
                self._host.start("127.0.0.1:0", again=True)
            fleet = Fleet(self._job, self._host.address, self._env)
            self._say_what_starts()
            fleet.start()
            with JobView(self._host.client, self._display).running() as view:
                self._supervise(fleet, view)
        finally:
            if fleet is not None:
                fleet.kill()
            self._host.end(0, self._stop)
            self._key_file.unlink(missing_ok=True)

    def _say_what_starts(self) -> None:
        cluster = self._job.cluster
        self._display.note(
            f"{self._job.job.name}: coordinator on {self._host.address}, {cluster.servers} "
            f"server{'s' * (cluster.servers > 1)}, {cluster.workers} "
            f"worker{'s' * (cluster.workers > 1)}; logs in {self._directory.logs}"
        )

    def _supervise(self, fleet: Fleet, view: JobView) -> None:
        # The coordinator ends by itself when the job is done; an agent that hangs isn't waited for.
        while not fleet.done() and not self._host.finished():
            self._check(fleet, view)
            status = view.look()
            if status is not None and status.generation > self._generation:
                self._generation = status.generation
                fleet.revive()
            time.sleep(_POLL_SECONDS)
        view.end(self._directory.logs)
        self._display.note(f"result: {self._directory.result_file}")
        self._let_copy(view)

    def _let_copy(self, view: JobView) -> None:
        """The last checkpoint gets the time to reach the mirror, and people hear if it doesn't."""
        if (status := view.refresh()) is not None and status.checkpoint.upkeep:
            self._display.note("the last checkpoint is still being copied or made a delta")
        self._host.let_copy(self._stop, view.refresh)

    def _check(self, fleet: Fleet, view: JobView) -> None:
        """Raise, after everything has been ended, what went other than well."""
        if self._stop.signal is not None:
            end = self._stopped(fleet)
            self._let_copy(view)
            raise end
        # Without it nothing can be ended with care: rows can't be returned, nor anything be saved.
        self._host.keep()
        fleet.restart_due()
        agent = fleet.failed()
        if agent is not None and not self._goes_on(agent, fleet, view):
            end = self._failed(agent, view)
            fleet.end(_FAILED_SECONDS, self._stop.hurry)
            raise end

    def _goes_on(self, agent: Agent, fleet: Fleet, view: JobView) -> bool:
        """Whether the job does without this agent, for good or until it is started again."""
        again = fleet.may_restart(agent)
        if agent.died:
            self._report(agent, again=again)
        status = view.refresh()
        if status is None or status.job in OVER:
            return False
        if again:
            fleet.restart_later(agent)
        elif agent.kind == "worker" and status.job == "running":
            agent.given_up = True
        return again or agent.given_up

    def _stopped(self, fleet: Fleet) -> FleetError:
        reason = f"stopped by {self._stop.reason}"
        again = " (Ctrl-C again: at once)" * (self._stop.signal == signal.SIGINT)
        self._display.note(f"{reason}: workers finish their batch{again}")
        try:
            end = end_of(self._saved(self._host.client.stop(reason)))
        except Stopped as error:
            end = error
        except FleetError as error:
            _log.warning("the coordinator was not told: %s", error)
            end = Stopped(reason)
        fleet.end(batch_seconds(self._job) + _AGENT_SECONDS, self._stop.hurry)
        return end

    def _saved(self, state: JobState) -> JobState:
        """The state of the job when its last checkpoint was taken, or there was no time for it."""
        if state.ending:
            self._display.note("a checkpoint is taken first")
        while state.job not in OVER and not self._stop.hurry():
            time.sleep(_POLL_SECONDS)
            self._host.check()
            state = state_of(self._host.client.status())
        if state.job not in OVER:
            raise Stopped(f"stopped by {self._stop.reason}, without a checkpoint")
        return state

    def _failed(self, agent: Agent, view: JobView) -> FleetError:
        """Why the job ended: what the coordinator was told first, or how this agent died."""
        status = view.refresh()
        if status is None or status.job not in OVER:
            self._report(agent)
            status = view.refresh()
        if status is not None and status.job in ("failed", "stopping"):
            view.end(self._directory.logs)
            return end_of(state_of(status))
        return self._unreported(agent)

    def _report(self, agent: Agent, *, again: bool = False) -> None:
        """For an agent that could not do so itself."""
        words, log_tail = agent.last_words(), tail(agent.child.log)
        try:
            self._host.client.fail(agent.instance, words, log_tail, agent.child.poll(), again=again)
        except FleetError as error:
            _log.info("%s had not joined: %s", agent.name, error)

    def _unreported(self, agent: Agent) -> FleetError:
        """It ended before it had joined, or the coordinator no longer answers."""
        for line in tail(agent.child.log):
            self._display.note(f"  {line}")
        self._display.note(f"logs of all processes: {self._directory.logs}")
        sentence = f"{agent.name}: {agent.last_words()}"
        kinds = {EXIT_USER: UserError, EXIT_STOPPED: Stopped}
        return kinds.get(agent.child.poll() or 0, TryAgain)(sentence)
