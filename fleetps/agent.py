"""The agent: what a container or process of a job does, according to its role.

It runs no Paddle itself but watches over the one process that does, so that it always answers:
to the coordinator, to signals, and to the death of its child.
"""

import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack

from fleet_config.endpoints import Endpoint, parse_endpoint
from fleet_config.errors import FleetError, Stopped
from fleet_config.job import Job
from fleet_config.roles import Role
from fleetps import refusal
from fleetps.agents.hosting import HostedCoordinator
from fleetps.agents.local import LocalAgent
from fleetps.agents.member import POLL_SECONDS, Member
from fleetps.agents.membership import OVER, end_of, state_of
from fleetps.agents.paddle_process import label_of
from fleetps.agents.restart_policy import RESTART, restart_policy
from fleetps.agents.server import ServerAgent, check_server_place
from fleetps.agents.worker import WorkerAgent
from fleetps.coordinator.access import read_token
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.reports import MISSED_HEARTBEATS
from fleetps.installation import check_installation
from fleetps.newrun import ensure_dataset, new_run, shown
from fleetps.observe.job_view import JobView
from fleetps.observe.logs import set_up_logging
from fleetps.observe.relay import relayed
from fleetps.system.rundir import RunDirectory
from fleetps.system.signals import StopRequest

_log = logging.getLogger(__name__)

# For a coordinator beside server 0, which never comes back.
_PATIENCE_BESIDE_SERVER_SECONDS = 8.0
# How long the host of a coordinator waits for the others to hear the end.
_LEAVE_SECONDS = 8.0


def run(job: Job, role: Role, stop: StopRequest) -> None:
    """Play the role until the job is done; any other end is raised."""
    if role.kind != "coordinator":
        check_installation()
    if role.kind == "local":
        _run_local(job, stop)
    elif role.kind == "coordinator":
        _run_coordinator(job, role, stop)
    else:
        _run_member(job, role, stop)


def coordinator_address(role: Role) -> str:
    """Where this role's coordinator listens.

    Paddle's launchers list processes of one machine under its outside address; they meet on
    loopback all the same, where no token is needed.
    """
    address = parse_endpoint(role.coordinator or "", "COORDINATOR")
    hosts = {_host_of(peer) for peer in (*role.servers, *role.workers)}
    if role.coordinator_beside_server_0 and role.workers and hosts == {address.host}:
        return str(Endpoint("127.0.0.1", address.port))
    return str(address)


def _host_of(peer: str) -> str:
    return parse_endpoint(peer, "peer").host if ":" in peer else peer


def _bind(address: str) -> str:
    """With a token every interface will do; a Service's name is no address of this machine."""
    endpoint = parse_endpoint(address, "COORDINATOR")
    if endpoint.is_loopback or read_token(os.environ) is None:
        return address
    return str(Endpoint("0.0.0.0", endpoint.port))  # noqa: S104


def _run_local(job: Job, stop: StopRequest) -> None:
    with shown(job) as display:
        display.note(f"{job.job.name}: local training in one process, no servers")
        with new_run(job, display, stop):
            LocalAgent(job, display, stop).run()
            display.note(f"result: {RunDirectory(job.run_dir).result_file}")


def _run_coordinator(job: Job, role: Role, stop: StopRequest) -> None:
    stays = restart_policy() == "always"
    host = HostedCoordinator(job, os.environ, stays=stays)
    try:
        with shown(job) as display, relayed(job, "coordinator"):
            with stop.interrupting(), refusal.left_in(job.run_dir):
                ensure_dataset(job, display.note)
                # Started again, it goes on with the job where it was.
                host.start(_bind(role.coordinator or ""))
            with JobView(host.client, display).running() as view:
                _watch_coordinator(job, host, view, stop)
                if stays:
                    _stay(stop, host.keep)
    finally:
        host.end(job.cluster.deadlines.stop, stop)


def _watch_coordinator(job: Job, host: HostedCoordinator, view: JobView, stop: StopRequest) -> None:
    asked = False
    while True:
        if stop.signal is not None and not asked:
            _stop_job(host, stop)
            asked = True
        host.keep()
        status = view.look()
        if status is not None and status.job in OVER:
            view.end(RunDirectory(job.run_dir).logs)
            if status.job == "done":
                return
            raise end_of(state_of(status))
        time.sleep(POLL_SECONDS)


def _stop_job(host: HostedCoordinator, stop: StopRequest) -> None:
    """Whoever stops a group of processes (systemd, a batch system) stops the coordinator's too."""
    reason = f"the coordinator was asked to stop ({stop.reason})"
    try:
        host.client.stop(reason)
    except FleetError as error:
        raise Stopped(f"{reason}; its process was not told: {error}") from None


def _run_member(job: Job, role: Role, stop: StopRequest) -> None:
    stays = restart_policy() == "always"
    kind = ServerAgent if role.kind == "server" else WorkerAgent
    address = coordinator_address(role)
    if not role.servers:
        with stop.interrupting():
            if role.kind == "server":
                check_server_place(job, role)  # a mistake of its own is told whoever else is there
            job = _as_large(job, address)
    member = kind(job, role, address, stop, _patience(job, role))
    with ExitStack() as stack:
        host = _host(job, role, stop, stack) if role.hosts_coordinator else None
        member.on_tick = host.keep if host is not None else member.on_tick
        member.on_joined = lambda: _joined(member, role, host, stack)
        member.run()
    if stays:
        _stay(stop)


def _stay(stop: StopRequest, tick: Callable[[], None] = lambda: None) -> None:
    """The job is done. Ending would be to be started again, and to begin it anew."""
    _log.info("the job is done; this process stays until it is stopped (%s=always)", RESTART)
    while stop.signal is None:
        tick()
        time.sleep(POLL_SECONDS)


def _as_large(job: Job, coordinator: str) -> Job:
    """The job with as many servers and workers as the coordinator has it."""
    token, patience = read_token(os.environ), job.cluster.deadlines.rendezvous
    with CoordinatorClient(coordinator, token, patience) as client:
        size = client.size()
    cluster = job.cluster.model_copy(update={"servers": size.servers, "workers": size.workers})
    return job.model_copy(update={"cluster": cluster})


def _patience(job: Job, role: Role) -> float:
    """Seconds without a coordinator after which it counts as lost.

    It may be started again, or be out of reach: so long it would itself wait for this member.
    """
    if role.coordinator_beside_server_0:
        return _PATIENCE_BESIDE_SERVER_SECONDS
    cluster = job.cluster
    return MISSED_HEARTBEATS * cluster.heartbeat + cluster.deadlines.rendezvous


def _host(job: Job, role: Role, stop: StopRequest, stack: ExitStack) -> HostedCoordinator:
    display = stack.enter_context(shown(job))
    with refusal.left_in(job.run_dir):
        stack.enter_context(new_run(job, display, stop, goes_on=True))
        host = HostedCoordinator(job, os.environ)
        stack.callback(host.end, _LEAVE_SECONDS, stop)
        with stop.interrupting():
            host.start(_bind(coordinator_address(role)), again=True)
    return host


def _joined(member: Member, role: Role, host: HostedCoordinator | None, stack: ExitStack) -> None:
    """The rank is known now: use it in the log, and show the job where people look for it.

    That is with the coordinator; beside server 0 it has no output of its own, and Paddle's
    launchers show one process or the other.
    """
    job, membership = member.job, member.membership
    name = label_of(membership)
    set_up_logging(job.observe.log_format, name)
    stack.enter_context(relayed(job, name))
    if host is None and not (
        membership.kind == "worker" and membership.rank == 0 and role.coordinator_beside_server_0
    ):
        return
    display = stack.enter_context(shown(job))
    view = stack.enter_context(JobView(membership.client, display).running())

    def tick() -> None:
        if host is not None:
            host.keep()
        view.look()

    member.on_tick = tick
    member.on_end = lambda: view.end(RunDirectory(job.run_dir).logs)
