"""A connection to a host: its key checked as ssh does, and a sentence for each way to fail."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import asyncssh

from fleet_config.errors import FleetError, TryAgain, UserError
from fleetps.ssh.plan import Placement

_CONNECT_SECONDS = 15.0
# A host that is gone is noticed after three of them.
_KEEPALIVE_SECONDS = 5.0


async def connect(place: Placement, *, accept_new: bool) -> asyncssh.SSHClientConnection:
    """Log in. `accept_new`: an unknown host's key is added to ~/.ssh/known_hosts.

    Raises:
        UserError: the host's key is unknown or another one than before; sshd refuses the user.
        TryAgain: nobody answers.
    """
    host = place.host
    gate = _HostKeys(place, accept_new=accept_new)
    given = {
        **({"username": host.user} if host.user else {}),
        **({"client_keys": [_private_key(place, host.key)]} if host.key else {}),
    }
    try:
        connection = await asyncssh.connect(
            host.address,
            host.port,
            client_factory=lambda: gate,
            connect_timeout=_CONNECT_SECONDS,
            login_timeout=_CONNECT_SECONDS,
            keepalive_interval=_KEEPALIVE_SECONDS,
            # Nobody is there to type a password.
            password_auth=False,
            kbdint_auth=False,
            **given,
        )
    except asyncssh.HostKeyNotVerifiable:
        raise gate.refusal() from None
    except (asyncssh.Error, OSError, asyncio.TimeoutError) as error:
        raise _sentence(place, error) from None
    # Only now: the host has proved that the key is its own.
    gate.remember()
    return connection


def _private_key(place: Placement, file: Path) -> asyncssh.SSHKey:
    try:
        return asyncssh.read_private_key(file)
    except asyncssh.KeyImportError as error:
        # One with a passphrase too.
        reason = f"it can't be used: {error}; a key with a passphrase has to be in ssh's agent"
    except OSError as error:
        reason = f"it can't be read ({error.strerror})"
    raise UserError(f"{place.key}.key: {file}: {reason}")


def _sentence(place: Placement, error: Exception) -> FleetError:
    host = place.host
    where = f"host {place.name} can't be reached"
    match error:
        case asyncssh.PermissionDenied():
            key = f"the key {host.key}" if host.key else "the keys of ssh's agent and ~/.ssh"
            user = f"user {host.user}" if host.user else "this user"
            return UserError(
                f"host {place.name}: sshd lets {user} not in with {key}; add the public key to "
                f"~/.ssh/authorized_keys there, or set {place.key}.user and {place.key}.key"
            )
        case socket.gaierror():
            return TryAgain(f"{where}: its name can't be resolved; look at {place.key}.address")
        case TimeoutError() | asyncio.TimeoutError():
            return TryAgain(f"{where}: no answer within {_CONNECT_SECONDS:g} s")
        case ConnectionRefusedError():
            return TryAgain(
                f"{where}: nothing listens on port {host.port}; does sshd run there, and is "
                f"{place.key}.port right?"
            )
        case OSError():
            return TryAgain(f"{where}: {error.strerror or error}")
        case _:
            return TryAgain(f"{where}: {str(error) or type(error).__name__}")


class _HostKeys(asyncssh.SSHClient):
    """Asked about host keys that are in no file of known hosts."""

    def __init__(self, place: Placement, *, accept_new: bool) -> None:
        self._place = place
        self._accept_new = accept_new
        self._seen: asyncssh.SSHKey | None = None
        self._entry = ""  # the host as ssh writes it down
        self._changed = False

    @property
    def _file(self) -> Path:
        return Path.home() / ".ssh" / "known_hosts"

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self._seen = key
        self._entry = host if port == 22 else f"[{host}]:{port}"
        if self._file.exists():
            keys, _, revoked, *_ = asyncssh.match_known_hosts(str(self._file), host, addr, port)
            self._changed = bool(keys) or key in revoked
        return self._accept_new and not self._changed

    def remember(self) -> None:
        """Write down the key that was taken as new, if one was."""
        if self._seen is None:
            return
        line = f"{self._entry} {self._seen.export_public_key('openssh').decode().strip()}\n"
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._file.open("a+", encoding="utf-8") as file:
                file.seek(0)
                text = file.read()
                file.write(line if not text or text.endswith("\n") else f"\n{line}")
        except OSError as error:
            raise UserError(
                f"{self._file}: the key of host {self._place.name} can't be written down "
                f"({error.strerror})"
            ) from None

    def refusal(self) -> UserError:
        name = self._place.name
        shown = f"{self._seen.get_algorithm()} {self._seen.get_fingerprint()}" if self._seen else ""
        if self._changed:
            return UserError(
                f"host {name} has another host key than the one in {self._file}: {shown}; it was "
                "installed anew, or somebody is in between. If you know that it is right, remove "
                f"the old one: ssh-keygen -R '{self._entry}'"
            )
        return UserError(
            f"host {name} has an unknown host key: {shown}; compare it with the host's own and "
            "log in once with ssh, or give --accept-new to take keys of new hosts as they are"
        )
