"""Ports, the run directory, the end of a log, and requests to stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fleet_config.errors import Stopped, TryAgain, UserError
from fleetps.system.logtail import exception, tail
from fleetps.system.ports import UnresolvedHost, check_free, free_ports, unreachable
from fleetps.system.pulse_file import Silence, give_time
from fleetps.system.rundir import RunDirectory
from fleetps.system.signals import StopRequest


class TestPorts:
    def test_free_ports_are_free_and_different(self) -> None:
        ports = free_ports(5)
        assert len(set(ports)) == 5
        for port in ports:
            check_free("127.0.0.1", port)

    def test_too_many(self) -> None:
        with pytest.raises(TryAgain, match="has no 100000 free ports"):
            free_ports(100_000)

    def test_one_in_use_is_named_with_its_holder(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with pytest.raises(TryAgain) as refused:
                check_free("127.0.0.1", port)
        assert f"port 127.0.0.1:{port} is in use by process {os.getpid()} (" in str(refused.value)

    def test_the_first_that_can_not_be_reached(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            there = f"127.0.0.1:{server.getsockname()[1]}"
            assert unreachable([]) == unreachable([there, there]) is None
            away = f"127.0.0.1:{free_ports(1)[0]}"
            assert str(unreachable([there, away, away])) == f"server 1 ({away})"
            assert str(unreachable(["no-such.invalid:80"])) == "server 0 (no-such.invalid:80)"

    def test_an_unknown_host(self) -> None:
        with pytest.raises(UnresolvedHost, match=r"no-such-host\.invalid can't be resolved"):
            check_free("no-such-host.invalid", 80)

    def test_the_address_of_another_machine(self) -> None:
        with pytest.raises(UserError, match="not an address of this machine"):
            check_free("198.51.100.1", 6174)


class TestRunDirectory:
    def test_one_run_at_a_time(self, tmp_path: Path) -> None:
        run = RunDirectory(tmp_path / "runs/a")
        with run.locked():
            with pytest.raises(TryAgain) as refused, RunDirectory(run.path).locked():
                pass
            assert f"a job named a already runs in {run.path} (process {os.getpid()})" in str(
                refused.value
            )
        with run.locked():
            pass

    def test_a_directory_in_the_place_of_the_lock(self, tmp_path: Path) -> None:
        (tmp_path / "lock").mkdir()
        with (
            pytest.raises(UserError, match=f"can't write in the run directory {tmp_path}: Is a"),
            RunDirectory(tmp_path).locked(),
        ):
            pass

    def test_a_full_disk(self, tmp_path: Path) -> None:
        code = (
            "import resource, sys\n"
            "from pathlib import Path\n"
            "from fleet_config.errors import UserError\n"
            "from fleetps.system.rundir import RunDirectory\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
            "try:\n"
            "    with RunDirectory(Path(sys.argv[1])).locked(): pass\n"
            "except UserError as error:\n"
            "    print(error)\n"
        )
        command = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout.startswith(
            f"can't write in the run directory {tmp_path}: File too large"
        )

    def test_the_lock_goes_with_its_holder(self, tmp_path: Path) -> None:
        code = (
            "import os, signal, sys\n"
            "from pathlib import Path\n"
            "from fleetps.system.rundir import RunDirectory\n"
            "with RunDirectory(Path(sys.argv[1])).locked():\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
        assert done.returncode == -signal.SIGKILL
        with RunDirectory(tmp_path).locked():
            pass

    def test_an_earlier_run_is_set_aside_whole(self, tmp_path: Path) -> None:
        run = RunDirectory(tmp_path / "a")
        with run.locked():
            assert run.set_aside_previous() is None
            run.result_file.write_text("{}")
            run.logs.mkdir()
            (run.logs / "server-0.log").write_text("x")
            first = run.set_aside_previous()
            assert first is not None
            assert (first / "result.json").read_text() == "{}"
            assert (first / "logs/server-0.log").read_text() == "x"
            assert not run.result_file.exists()
            # A second one within the same second, and the first stays as it is.
            run.result_file.write_text("[]")
            second = run.set_aside_previous()
            assert second is not None
            assert second != first
            assert (second / "result.json").read_text() == "[]"
            assert (first / "result.json").exists()

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        run = RunDirectory(tmp_path / "file/a")
        with (
            pytest.raises(UserError, match=r"can't create the run directory .*job\.output"),
            run.locked(),
        ):
            pass
        named = RunDirectory(tmp_path / "file")
        for one in (run, named):
            assert one.obstacle().startswith(f"{tmp_path / 'file'} is a file; move it away, or set")
        assert RunDirectory(tmp_path / "a/b").obstacle() == ""


class TestLogTail:
    def test_paddles_chatter_is_dropped(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_text(
            "I1129 15:34:25.783169 17320 program_interpreter.cc:212] New Executor is Running.\n"
            "fl-ps > coordinator address is null!\n"
            "/x/the_one_ps.py:739: UserWarning: The PS mode must use MemorySparseTable.\n"
            '  warnings.warn("The PS mode must use MemorySparseTable.")\n'
            "F1129 15:34:25.9 17320 fleet.cc:428] Pull dense failed more than 20 times\n"
            "--------------------------------------\n"
            "C++ Traceback (most recent call last):\n"
            "0   paddle::distributed::FleetWrapper::PushDenseParamSync(paddle::framework::Scope)\n"
            "FatalError: `Process abort signal` is detected by the operating system.\n"
            "\n"
        )
        assert tail(log) == [
            "F1129 15:34:25.9 17320 fleet.cc:428] Pull dense failed more than 20 times",
            "FatalError: `Process abort signal` is detected by the operating system.",
        ]

    def test_only_the_last_lines(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_text("".join(f"line {number}\n" for number in range(100_000)))
        assert tail(log, 2) == ["line 99998", "line 99999"]

    def test_nothing_but_chatter_is_better_than_nothing(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_text("fl-ps > coordinator address is null!\n")
        assert tail(log) == ["fl-ps > coordinator address is null!"]

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_bytes(b"\xff\xfe then text\n")
        assert tail(log)[0].endswith("then text")

    def test_no_log(self, tmp_path: Path) -> None:
        assert tail(tmp_path / "none.log") == []

    def test_the_exception_at_the_end(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_text('  File "x.py", line 1\nValueError: no\n')
        assert exception(log) == "ValueError: no"
        log.write_text("SystemError: (Fatal) In a pool. It is:\n std::exception. (at pool.h:86)\n")
        assert exception(log) == "SystemError: (Fatal) In a pool. It is:"
        log.write_text("ready\n")
        assert exception(log) == ""


class TestStopRequest:
    @pytest.mark.parametrize(
        ("number", "reason"),
        [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
    )
    def test_a_signal_is_noted(self, number: signal.Signals, reason: str) -> None:
        with StopRequest() as stop:
            os.kill(os.getpid(), number)
            assert stop.signal == number
            assert stop.reason == reason
            assert not stop.hurry()

    def test_it_interrupts_a_wait(self) -> None:
        def wait() -> None:
            with stop.interrupting():
                os.kill(os.getpid(), signal.SIGTERM)
                pytest.fail("went on")

        with StopRequest() as stop, pytest.raises(Stopped, match="SIGTERM"):
            wait()

    def test_one_that_came_before_the_wait(self) -> None:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(Stopped), stop.interrupting():
                pytest.fail("went on")

    def test_a_second_signal_does_not_break_the_clean_up(self) -> None:
        cleaned = False
        with StopRequest() as stop:
            try:
                with stop.interrupting():
                    try:
                        os.kill(os.getpid(), signal.SIGTERM)
                    finally:
                        os.kill(os.getpid(), signal.SIGTERM)
                        cleaned = True
            except Stopped:
                pass
        assert cleaned

    def test_ctrl_c_twice_is_a_hurry_and_sigterm_twice_is_not(self) -> None:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert not stop.hurry()
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.hurry()

    def test_enough_is_enough(self) -> None:
        old = signal.getsignal(signal.SIGTERM)
        try:
            with StopRequest() as stop:
                stop.enough()
                os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.signal is None
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, old)
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def test_what_was_deaf_stays_deaf_and_the_rest_is_put_back(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with StopRequest() as stop:
                os.kill(os.getpid(), signal.SIGHUP)
                assert stop.signal is None
            assert signal.getsignal(signal.SIGTERM) == before
        finally:
            signal.signal(signal.SIGHUP, old)


def test_a_process_that_slept_with_its_machine_is_not_silent(tmp_path, monkeypatch) -> None:
    clock = [50.0]
    monkeypatch.setattr("fleetps.system.pulse_file.time.monotonic", lambda: clock[0])
    give_time(tmp_path, 0)
    silence = Silence(tmp_path)
    assert silence.longer_than(10) == 0
    give_time(tmp_path, -3600)  # the hour in which it slept
    assert silence.longer_than(10) == 0
    clock[0] += 2
    give_time(tmp_path, 0)  # its next sign
    assert silence.longer_than(10) == 0
    give_time(tmp_path, -11)
    assert silence.longer_than(10) == 0
    clock[0] += 3.1  # and still none
    assert silence.longer_than(10) == pytest.approx(11, abs=1)
