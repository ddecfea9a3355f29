"""`fleetps wait`: until a job is over, ending with its exit code.

What watches over containers may start a job again that ended with 75, and then it goes on.
"""

import contextlib
import logging
import socket
import time
from pathlib import Path

from fleet_config.endpoints import Endpoint, parse_endpoint
from fleet_config.errors import EXIT_OK, TryAgain
from fleet_config.job import Job
from fleetps import refusal
from fleetps.agents.membership import OVER, end_of, state_of
from fleetps.coordinator.client import CoordinatorClient
from fleetps.coordinator.runfiles import end_left
from fleetps.newrun import checked_dataset, to_be_made
from fleetps.statusline import client_of

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
# The coordinator of a job that is done ends when all have left and a little after; one that stays
# for good isn't waited for.
_LEAVING_SECONDS = 10.0
_GONE_SECONDS = 1.0


def wait(coordinator: str | None, run: str | None, patience: float, job: Job | None = None) -> int:
    """Until the job is done, and its coordinator gone.

    Args:
        patience: seconds without a running job after which nothing more is expected.
        job: what is to run. With a mistake in its data no coordinator would start to tell of it;
            of another one it leaves word in the run directory.
            For the first answer it has as long as processes wait for one another.

    Raises:
        FleetError: how it ended otherwise.
    """
    last: TryAgain | None = None
    began, heard, patient = time.time(), time.monotonic(), patience
    if job is not None:
        if to_be_made(job) is None:
            checked_dataset(job)
        patient = max(patience, job.cluster.deadlines.rendezvous)
    with client_of(coordinator, run) as client:
        while True:
            try:
                if _is_done(client, run):
                    _let_it_leave(coordinator, run)
                    return EXIT_OK
                last, heard, patient = None, time.monotonic(), patience
            except TryAgain as error:
                if last is None:
                    _log.warning("%s; waiting up to %.0f s for the job to start", error, patient)
                last = last or error
                if job is not None:
                    refusal.raise_left_in(job.run_dir, began)
                if time.monotonic() - heard > patient:
                    raise last from None
            time.sleep(_POLL_SECONDS)


def _is_done(client: CoordinatorClient, run: str | None) -> bool:
    try:
        state = state_of(client.status())
    except TryAgain:
        left = end_left(Path(run)) if run is not None else None
        if left is None:
            raise
        state = left
    if state.job in OVER and state.job != "done":
        raise end_of(state)
    return state.job == "done"


def _let_it_leave(coordinator: str | None, run: str | None) -> None:
    """Compose takes containers that are about to end for running ones, and starts only others."""
    deadline = time.monotonic() + _LEAVING_SECONDS
    with (
        contextlib.suppress(TryAgain, OSError),
        client_of(coordinator and _by_number(coordinator), run, _GONE_SECONDS) as client,
    ):
        while client.status().job == "done" and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def _by_number(coordinator: str) -> str:
    """In a network of Docker it takes 10 s to hear that a name is none any more."""
    host, port = parse_endpoint(coordinator, "--coordinator")
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return str(Endpoint(str(found[0][4][0]), port))
