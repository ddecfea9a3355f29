"""The agents that a launcher starts on this machine."""

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet_config.errors import EXIT_STOPPED
from fleet_config.job import Job
from fleetps.agents.restarts import Restarts, crashed
from fleetps.coordinator.reports import MemberRole
from fleetps.observe.logs import message_of
from fleetps.system.logtail import tail
from fleetps.system.ports import free_ports
from fleetps.system.process import Child, describe_exit, end_all
from fleetps.system.rundir import RunDirectory

# What of our own environment would give an agent another role than ours.
ROLE_VARIABLES = (
    "TRAINING_ROLE",
    "TF_CONFIG",
    "ROLE",
    "SERVER_",
    "WORKER_",
    "PADDLE_",
    "POD_IP",
)

_SERVERS_SECONDS = 4.0


@dataclass
class Agent:
    kind: MemberRole
    rank: int
    instance: str
    role: Mapping[str, str]
    child: Child
    restarts: Restarts
    starts_at: float | None = None  # while it waits for its next start
    given_up: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.rank}"

    @property
    def died(self) -> bool:
        """It was killed or crashed, so it could say nothing itself."""
        return crashed(self.child.poll())

    def last_words(self) -> str:
        """Its last sentence, and how it ended."""
        code = self.child.poll()
        words = describe_exit(code) if code is not None else "still runs"
        last = tail(self.child.log, 1)
        if code is not None and code > 0 and last:
            return message_of(last[0])
        return f"its agent (process {self.child.pid}) ended: {words}"


class Fleet:
    """Servers and workers, each an agent with its role in the environment."""

    def __init__(self, job: Job, coordinator: str, env: Mapping[str, str]) -> None:
        self._job = job
        self._run = RunDirectory(job.run_dir)
        kept = {name: v for name, v in env.items() if not name.startswith(ROLE_VARIABLES)}
        self._env = {**kept, "COORDINATOR": coordinator}
        self.agents: list[Agent] = []

    def start(self) -> None:
        endpoints = [f"127.0.0.1:{port}" for port in free_ports(self._job.cluster.servers)]
        shared = {"SERVER_ENDPOINTS": ",".join(endpoints)}
        for rank, endpoint in enumerate(endpoints):
            role = {"ROLE": "SERVER", "SERVER_ENDPOINT": endpoint}
            self.agents.append(self._agent("server", rank, {**shared, **role}))
        for rank in range(self._job.cluster.workers):
            role = {"ROLE": "WORKER", "WORKER_INDEX": str(rank)}
            self.agents.append(self._agent("worker", rank, {**shared, **role}))

    def _agent(self, kind: MemberRole, rank: int, role: Mapping[str, str]) -> Agent:
        instance = f"{kind}-{rank}-{uuid.uuid4().hex[:8]}"
        restarts = Restarts(self._job.cluster.restarts)
        process = self._process(kind, rank, instance, role)
        return Agent(kind, rank, instance, role, process, restarts)

    def _process(
        self, kind: MemberRole, rank: int, instance: str, role: Mapping[str, str]
    ) -> Child:
        command = [sys.executable, "-m", "fleetps.main", "--config", str(self._run.job_file)]
        return Child(
            f"{kind} {rank}",
            command,
            log=self._run.logs / f"{kind}-{rank}.agent.log",
            env={**self._env, **role, "FLEETPS_INSTANCE": instance},
        )

    def may_restart(self, agent: Agent) -> bool:
        """One that died, or a server that was stopped; who ended by itself said why."""
        agent.restarts.died()
        stopped = agent.kind == "server" and agent.child.poll() == EXIT_STOPPED
        return (agent.died or stopped) and agent.restarts.left

    def restart_later(self, agent: Agent) -> None:
        """As the same instance, so that the coordinator knows it again."""
        agent.starts_at = time.monotonic() + agent.restarts.pause()
        agent.restarts.again()

    def revive(self) -> None:
        """In a new generation every worker is needed; those that were given up get one more try."""
        for agent in self.agents:
            if agent.given_up:
                agent.given_up = False
                agent.starts_at = time.monotonic()

    def restart_due(self) -> None:
        """Start those whose pause is over."""
        for agent in self.agents:
            if agent.starts_at is not None and time.monotonic() >= agent.starts_at:
                agent.starts_at = None
                agent.child = self._process(agent.kind, agent.rank, agent.instance, agent.role)
                agent.restarts.began()

    def failed(self) -> Agent | None:
        """One that ended other than well, and about which nothing was decided yet."""
        return next((agent for agent in self._counted() if agent.child.poll()), None)

    def done(self) -> bool:
        waiting = any(agent.starts_at is not None for agent in self.agents)
        return not waiting and all(agent.child.poll() == 0 for agent in self._counted())

    def _counted(self) -> Iterator[Agent]:
        return (a for a in self.agents if a.starts_at is None and not a.given_up)

    def end(self, grace: float, hurry: Callable[[], bool]) -> None:
        """Workers first: while they finish their batches they need the servers."""
        end_all(self._children("worker"), grace, hurry)
        end_all(self._children("server"), min(grace, _SERVERS_SECONDS), hurry)

    def kill(self) -> None:
        for agent in self.agents:
            agent.child.kill()

    def _children(self, kind: MemberRole) -> Sequence[Child]:
        return [agent.child for agent in self.agents if agent.kind == kind]
