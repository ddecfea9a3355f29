"""What all tests share: a free port, and a guard against processes that a test leaves behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import uuid
from collections.abc import Iterator

import isolation
import psutil
import pytest
from isolation import MARK

_END_SECONDS = 5.0

# Started by nohup or with a shell's &, tests would be deaf to Ctrl-C, and so would all processes
# that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def free_port() -> int:
    """A TCP port on loopback that nothing uses at this moment."""
    return isolation.free_port()


@pytest.fixture(scope="module")
def module_port() -> int:
    """The same for fixtures that live as long as a module."""
    return isolation.free_port()


@pytest.fixture(autouse=True)
def no_process_left_behind(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fails a cluster test whose processes outlive it, and ends them."""
    if request.node.get_closest_marker("cluster") is None:
        yield
        return
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield
    left = [*_marked(mark), *(psutil.Process(c.pid) for c in multiprocessing.active_children())]
    # One that has just been told to end may take a moment to be gone.
    _, alive = psutil.wait_procs(left, timeout=_END_SECONDS)
    names = [_described(process) for process in alive]
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=_END_SECONDS)
    assert not names, f"the test left processes behind: {'; '.join(names)}"


def _marked(mark: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and _environment(process).get(MARK) == mark
    ]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())}"
    except psutil.Error:
        return str(process.pid)
