"""A real sshd on loopback, as the user who runs the tests, with keys made for it alone."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from isolation import MARK, free_port
from running_job import wait_until

# SHLVL: a bash that sshd starts reads ~/.bashrc, but not one inside another. What is in there, and
# how long it takes, is no matter of the tests.
_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host_key
PidFile {directory}/sshd.pid
AuthorizedKeysFile {authorized}
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
SetEnv {mark}={value} SHLVL=1
"""
# Where sshd, run as root, wants an empty directory.
_PRIVILEGE_SEPARATION = Path("/run/sshd")


def sshd_binary() -> str:
    """Skips the test where there is none."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None or shutil.which("ssh-keygen") is None:
        pytest.skip("sshd is not installed: apt install openssh-server")
    return found


def make_key(file: Path) -> Path:
    """A key pair without passphrase."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(file)]
    subprocess.run(command, check=True)
    return file


class Sshd:
    """`start()` returns when it listens. Nothing but the key pair `key` is let in."""

    def __init__(self, directory: Path, key: Path) -> None:
        self._binary = sshd_binary()
        self.directory = directory
        directory.mkdir()
        self.port = free_port()
        self.user = getpass.getuser()
        make_key(directory / "host_key")
        self._config = directory / "sshd_config"
        self._config.write_text(
            _CONFIG.format(
                port=self.port,
                directory=directory,
                authorized=key.with_suffix(".pub"),
                mark=MARK,
                value=os.environ[MARK],
            )
        )
        if os.geteuid() == 0:
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)

    def start(self) -> None:
        log = self.directory / "sshd.log"
        command = [self._binary, "-D", "-e", "-f", str(self._config)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        wait_until(self._listens, 10, "sshd", log.read_text)

    def _listens(self) -> bool:
        assert self._process.poll() is None, (self.directory / "sshd.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(5)

    @property
    def known_hosts_line(self) -> str:
        kind, key, *_ = (self.directory / "host_key.pub").read_text().split()
        return f"[127.0.0.1]:{self.port} {kind} {key}\n"
