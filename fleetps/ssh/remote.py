"""A host's side of the conversation: send it the code, ask its helper."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncssh
from pydantic import ValidationError

from fleet_config.errors import EXIT_USER, FleetError, TryAgain, UserError
from fleetps.logbook.line import Line
from fleetps.ssh.connect import connect
from fleetps.ssh.plan import Placement
from fleetps.ssh.words import Answer, LogLine, Request

_SYNC_SECONDS = 300.0
_CLOSE_SECONDS = 2.0
# Beyond what the host was asked to wait itself.
_ANSWER_SECONDS = 60.0
# The shell's way to say that there is no code yet.
_NO_CODE = 66

_HELPER = (
    "cd {directory} 2>/dev/null && test -d code/fleetps || exit 66; {python};"
    ' PYTHONPATH="$PWD/code" exec "$python" -m fleetps.ssh.host'
)
_FIND_PYTHON = 'python="$PWD/.venv/bin/python"; test -x "$python" || python=python3'
# What is there stays whole until the new code has come whole.
_UNPACK = (
    "set -e; mkdir -p {directory}; cd {directory}; rm -rf code.new code.old; mkdir code.new;"
    " tar -xzf - -C code.new; test ! -e code || mv code code.old; mv code.new code; rm -rf code.old"
)


class Remote:
    """One host, logged in, and what it is asked about one job; `async with`."""

    def __init__(self, place: Placement, job: str, *, accept_new: bool) -> None:
        """`job`: the job's name."""
        self.place = place
        self._job = job
        self._accept_new = accept_new
        self._connection: asyncssh.SSHClientConnection | None = None

    async def __aenter__(self) -> Remote:
        self._connection = await connect(self.place, accept_new=self._accept_new)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.abort()  # everything was answered; close() waits for unread input
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._connection.wait_closed(), _CLOSE_SECONDS)

    @property
    def name(self) -> str:
        return self.place.name

    async def send_code(self, archive: bytes) -> None:
        """Put the code in place of what is there.

        Raises:
            UserError: the directory can't be written, or there is no tar.
        """
        done = await self._run(self._shell(_UNPACK), archive, _SYNC_SECONDS)
        self._check(done, "the code can't be put there")

    async def ask(self, action: str, **more: object) -> Answer:
        """The helper's answer to a Request; what it refuses is raised, with the host's name.

        Raises:
            UserError, TryAgain: as the helper says; there is no code or no Python that can run it.
        """
        request = self._request(action, more)
        text = f"{request.model_dump_json()}\n".encode()
        done = await self._run(self._shell(_HELPER), text, _ANSWER_SECONDS + request.grace)
        self._check(done, "its Python can't run the code")
        try:
            answer = Answer.model_validate_json(_text(done.stdout))
        except ValidationError:
            raise UserError(
                f"host {self.name} answers with something else: {_last_line(done.stdout)!r}; run "
                "sync, and let its shell write nothing where nobody logs in"
            ) from None
        if answer.error:
            kind = UserError if answer.exit_code == EXIT_USER else TryAgain
            raise kind(f"host {self.name}: {answer.error}")
        return answer

    async def logs(self, add: Callable[[Line], None], **more: object) -> None:
        """Call `add` with each line that the helper writes, as it comes."""
        request = self._request("logs", more)
        command = self._shell(_HELPER)
        try:
            async with self._open.create_process(command, errors="replace") as there:
                with suppress(BrokenPipeError):
                    there.stdin.write(f"{request.model_dump_json()}\n")
                async for text in there.stdout:
                    if text:  # there is none where the end comes a moment after the last line
                        said = LogLine.model_validate_json(text)
                        add(Line(said.time, said.process, said.text))
                done = await there.wait()
        except (asyncssh.Error, OSError) as error:
            raise self._lost(str(error) or type(error).__name__) from None
        self._check(done, "no logs")

    # -- inside --

    def _request(self, action: str, more: dict[str, object]) -> Request:
        who = {"action": action, "name": self._job, "host": self.name}
        return Request.model_validate({**who, **more})

    @property
    def _open(self) -> asyncssh.SSHClientConnection:
        if self._connection is None:
            raise RuntimeError("not connected")
        return self._connection

    async def _run(self, command: str, data: bytes, seconds: float) -> asyncssh.SSHCompletedProcess:
        try:
            return await asyncio.wait_for(self._end_of(command, data), seconds)
        except (TimeoutError, asyncio.TimeoutError):
            raise TryAgain(f"host {self.name} has not answered within {seconds:g} s") from None
        except (asyncssh.Error, OSError) as error:
            raise self._lost(str(error) or type(error).__name__) from None

    async def _end_of(self, command: str, data: bytes) -> asyncssh.SSHCompletedProcess:
        there = await self._open.create_process(command, encoding=None)
        # One that has ended already, such as for want of code, tells why by its exit code.
        with suppress(BrokenPipeError):
            there.stdin.write(data)
            there.stdin.write_eof()
        return await there.wait()

    def _lost(self, why: str) -> FleetError:
        return TryAgain(f"host {self.name}: the connection broke: {why}")

    @property
    def _directory(self) -> str:
        return self.place.host.directory

    def _shell(self, script: str) -> str:
        """A command for whatever shell the user has."""
        python = self.place.host.python
        filled = script.format(
            directory=_path(self._directory),
            python=f"python={_path(python)}" if python else _FIND_PYTHON,
        )
        return f"exec /bin/sh -c {shlex.quote(filled)}"

    def _check(self, done: asyncssh.SSHCompletedProcess, what: str) -> None:
        if done.exit_status is None:
            raise self._lost("no end was heard")
        if done.exit_status == _NO_CODE:
            raise UserError(f"host {self.name}: there is no code in {self._directory}; run sync")
        if done.exit_status != 0:
            reason = _last_line(done.stderr) or f"exit code {done.exit_status}"
            raise UserError(f"host {self.name}: {what}: {reason}")


def _path(path: str) -> str:
    """For the shell of the host, which knows where home is."""
    if path == "~" or path.startswith("~/"):
        return f'"$HOME"{shlex.quote(path[1:]) if path[1:] else ""}'
    return shlex.quote(path)


def _text(output: Any) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else str(output or "")


def _last_line(output: Any) -> str:
    lines = _text(output).strip().splitlines()
    return lines[-1] if lines else ""
