"""The coordinator's process: its socket, its clock, and its end."""

from __future__ import annotations

import errno
import ipaddress
import logging
import signal
import socket
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from fleet_config.errors import EXIT_STOPPED, FleetError, TryAgain, UserError
from fleet_config.job import Job
from fleetps.coordinator.access import TOKEN, TOKEN_FILE
from fleetps.coordinator.app import make_app
from fleetps.coordinator.runfiles import ADDRESS_FILE, CURVES, only_coordinator
from fleetps.coordinator.running_clock import RunningClock
from fleetps.coordinator.service import JobService
from fleetps.data.dataset import Dataset
from fleetps.observe.tensorboard import Curves

_log = logging.getLogger(__name__)
TICK_SECONDS = 0.5
# For those who still want to read the last status after the job's end.
_LINGER_SECONDS = 2.0
_CLOSE_SECONDS = 3
_BACKLOG = 2048
_LAST_PORT = 65535


def serve(
    job: Job,
    dataset: Dataset,
    *,
    bind: str,
    token: str | None,
    new: bool,
    again: bool = False,
    stays: bool = False,
    restarted: bool = False,
) -> int:
    """Serve until the job is over and everybody has left, or SIGTERM; the exit code.

    For `new`, `again`, `stays` and `restarted` see `JobService`.
    """
    with listen(bind, token) as sock, only_coordinator(job.run_dir):
        service = JobService(
            job,
            dataset,
            new=new,
            again=again,
            stays=stays,
            restarted=restarted,
            clock=RunningClock(),
        )
        try:
            _write_address(job.run_dir / ADDRESS_FILE, sock)
            return _Process(service, sock, token, _curves(job)).run()
        finally:
            service.close()


class _Process:
    def __init__(
        self, service: JobService, sock: socket.socket, token: str | None, curves: Curves | None
    ) -> None:
        self._service = service
        self._sock = sock
        self._curves = curves
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        config = uvicorn.Config(
            make_app(service, token),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._stop = threading.Event()
        self._ended_since: float | None = None

    def run(self) -> int:
        ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)
        ticker.start()
        _log.info("the coordinator listens at %s", _address(self._sock))
        try:
            self._heed_signals()
            self._server.run(sockets=[self._sock])
        finally:
            self._stop.set()
            ticker.join()
            self._end_curves()
        if self._service.lost is not None:
            raise self._service.lost
        code = self._service.status().exit_code
        return EXIT_STOPPED if code is None else code

    def _heed_signals(self) -> None:
        """uvicorn raises the signals it caught once more at its end; they find these handlers."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self._server.should_exit = True

    def _tick(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            try:
                if self._service.lost is None:
                    self._service.tick()
                    self._draw()
                if self._service.lost is not None or self._all_over():
                    self._server.should_exit = True
            except FleetError as error:
                _log.error("%s", error)
            except Exception:
                _log.exception("the coordinator could not look at its deadlines")

    def _draw(self) -> None:
        if self._curves is not None and self._curves.due():
            self._curves.add(self._service.status())

    def _end_curves(self) -> None:
        """The last values may have come since the last look."""
        if self._curves is not None and self._service.lost is None:
            self._curves.add(self._service.status())
            self._curves.close()

    def _all_over(self) -> bool:
        """Over, everybody gone, and a little more."""
        if not self._service.ended():
            return False
        self._ended_since = self._ended_since or time.monotonic()
        return time.monotonic() - self._ended_since >= _LINGER_SECONDS


def _curves(job: Job) -> Curves | None:
    if not job.observe.tensorboard:
        return None
    return Curves(job.run_dir / CURVES, job.checkpoint_dir)


def listen(bind: str, token: str | None) -> socket.socket:
    """A bound socket, so that a port in use is known before anything else is begun."""
    host, port = _host_and_port(bind)
    family, address = _resolve(host, port, bind)
    if not token and not ipaddress.ip_address(address[0]).is_loopback:
        raise UserError(
            f"the coordinator would listen at {bind} for everybody: set {TOKEN}, or {TOKEN_FILE} "
            "to a file with a secret, in all processes of the job, or bind to 127.0.0.1"
        )
    # The protocol must be named: only then does asyncio turn Nagle's algorithm off, and without
    # that every answer waits 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # at once after a restart
        sock.bind(address)
        # Two sockets may be bound with SO_REUSEADDR; only listening tells that the port is in use.
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise _not_bound(bind, error) from error
    return sock


def _host_and_port(bind: str) -> tuple[str, int]:
    host, separator, port = bind.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > _LAST_PORT:
        raise UserError(f"--bind {bind}: give host:port, such as 127.0.0.1:7164")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _resolve(host: str, port: int, bind: str) -> tuple[int, Any]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UserError(
            f"--bind {bind}: the name {host} cannot be resolved ({error.strerror})"
        ) from error
    family, _, _, _, address = found[0]
    return family, address


def _not_bound(bind: str, error: OSError) -> UserError | TryAgain:
    if error.errno == errno.EADDRINUSE:
        return TryAgain(
            f"the coordinator cannot listen at {bind}: the port is in use; "
            "stop what uses it, or choose another port"
        )
    return UserError(f"the coordinator cannot listen at {bind}: {error.strerror}")


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _write_address(path: Path, sock: socket.socket) -> None:
    """For who started it with port 0, and for `fleetps status`."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(f"{_address(sock)}\n", encoding="ascii")
    temporary.replace(path)
