"""Children: their output, their end, and that they can't outlive their parent."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fleetps.system.process import Child, describe_exit, end_all

PYTHON = sys.executable
SECONDS = 20.0
DEAF = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)\n"
)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def python(tmp_path: Path, code: str, **options: object) -> Child:
    return Child("child", [PYTHON, "-c", code], log=tmp_path / "logs/child.log", **options)  # type: ignore[arg-type]


def says(child: Child, text: str) -> Callable[[], bool]:
    return lambda: text in child.log.read_text()


def test_output_and_exit_code(tmp_path: Path) -> None:
    code = "import sys; print('to out'); print('to err', file=sys.stderr); sys.exit(3)"
    child = python(tmp_path, code)
    assert child.wait(SECONDS) == 3
    assert set(child.log.read_text().split("\n")) >= {"to out", "to err"}


def test_directory_and_environment(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['A'])"
    child = python(tmp_path, code, cwd=tmp_path, env={"A": "b"})
    assert child.wait(SECONDS) == 0
    assert child.log.read_text() == f"{tmp_path} b\n"


def test_a_child_in_another_directory_finds_this_package(tmp_path: Path) -> None:
    child = python(tmp_path, "import fleetps; print(fleetps.__version__)", cwd=tmp_path, env={})
    assert child.wait(SECONDS) == 0, child.log.read_text()


def test_waiting_has_an_end(tmp_path: Path) -> None:
    child = python(tmp_path, "import time; time.sleep(600)")
    assert child.wait(0.1) is None
    child.kill()
    assert child.wait(SECONDS) == -signal.SIGKILL


def test_terminate_asks_only_the_child_itself(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "def end(*_):\n"
        "    print('helper', helper.poll(), flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print(helper.pid, 'ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    child = python(tmp_path, code)
    wait_until(says(child, "ready"))
    helper = int(child.log.read_text().split()[0])
    child.terminate()
    assert child.wait(SECONDS) == 0
    assert "helper None" in child.log.read_text()
    # What it left behind in its group went with it.
    wait_until(lambda: gone(helper))


def test_end_all_kills_who_does_not_listen(tmp_path: Path) -> None:
    child = python(tmp_path, DEAF)
    wait_until(says(child, "ready"))
    end_all([child], 0.2)
    assert child.poll() == -signal.SIGKILL


def test_end_all_in_a_hurry_does_not_wait(tmp_path: Path) -> None:
    child = python(tmp_path, DEAF)
    wait_until(says(child, "ready"))
    end_all([child], 600, hurry=lambda: True)
    assert child.poll() == -signal.SIGKILL


def test_a_child_dies_with_its_killed_parent(tmp_path: Path) -> None:
    log = tmp_path / "grandchild.log"
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from fleetps.system.process import Child\n"
        "sleep = [sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(600)']\n"
        f"child = Child('grandchild', sleep, log=Path({str(log)!r}))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    wait_until(lambda: log.exists() and log.read_text() == "1\n")
    parent.kill()
    parent.wait()
    wait_until(lambda: gone(pid))


def test_a_child_whose_parent_is_gone_already_does_not_start(tmp_path: Path) -> None:
    guard = Path(sys.modules["fleetps.system.process"].__file__ or "").with_name("guard.py")
    nobody = subprocess.Popen([PYTHON, "-c", ""])
    nobody.wait()
    mark = tmp_path / "ran"
    command = [PYTHON, "-I", "-S", str(guard), str(nobody.pid), "9", "touch", str(mark)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "is gone" in done.stderr
    assert not mark.exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit 0 before the job was done"),
        (3, "exit code 3"),
        (143, "stopped by SIGTERM"),
        (-9, "killed by SIGKILL"),
        (-11, "crashed with SIGSEGV"),
        (-signal.SIGUSR1, "killed by SIGUSR1"),
        (-99, "killed by signal 99"),
    ],
)
def test_exit_codes_in_words(code: int, words: str) -> None:
    assert describe_exit(code).startswith(words)
