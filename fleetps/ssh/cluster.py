"""The commands on all hosts at once: sync, start, status, logs, stop."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fleet_config.errors import EXIT_OK, EXIT_USER, FleetError, TryAgain, UserError
from fleet_config.job import Job
from fleetps.agents.membership import end_of, state_of
from fleetps.logbook.line import Line
from fleetps.logbook.query import Query
from fleetps.ssh.in_order import InOrder
from fleetps.ssh.plan import Placement
from fleetps.ssh.remote import Remote
from fleetps.ssh.telling import job_line, job_status, overview, process_words
from fleetps.ssh.together import all_of, ask_some, raise_together, reachable
from fleetps.ssh.words import COORDINATOR, Answer, Answers, Errors, ProcessState

_POLL_SECONDS = 0.5
# Beyond cluster.deadlines: for loading Paddle on all hosts, and for the last words of everybody.
_LEEWAY_SECONDS = 10.0


class Cluster:
    """A job on its hosts. `text`: the job file as the hosts get it."""

    def __init__(
        self,
        job: Job,
        text: str,
        places: Sequence[Placement],
        show: Callable[[str], None],
        *,
        accept_new: bool,
    ) -> None:
        self._job = job
        self._text = text
        self._places = places
        self._show = show
        self._accept_new = accept_new

    # -- the commands --

    async def sync(self, archive: bytes) -> None:
        """Put the code on every host, and see that it can run there."""
        async with self._all() as remotes:
            await all_of(remotes, self._check_idle)
            for remote in remotes:
                # One after another: hosts may share a directory.
                await remote.send_code(archive)
            await all_of(remotes, lambda remote: remote.ask("check"))
        self._show(f"code of {len(archive):,} bytes on {_hosts(len(self._places))}")

    async def start(self, *, wait: bool) -> None:
        """Start what doesn't run; with `wait`, until the job trains.

        Nothing is started anywhere unless every host answers.
        """
        async with self._all() as remotes:
            answers = await self._ask_all(remotes)
            self._check_coordinator(answers)
            token = await self._token(remotes, answers)
            await self._prepare(remotes, token)
            await all_of(
                remotes,
                lambda remote: remote.ask("start", processes=remote.place.processes),
            )
            for remote in remotes:
                already = _running(answers[remote.place.key].processes)
                names = [process.name for process in remote.place.processes]
                words = [f"{name} (ran already)" if name in already else name for name in names]
                self._show(f"{remote.name}: {', '.join(words) or 'nothing'}")
            if wait:
                await self._until_it_trains(remotes)

    async def status(self) -> None:
        """Show every process; TryAgain names the hosts that can't be asked."""
        async with self._reachable() as (remotes, errors):
            answers = await ask_some(remotes, errors, "status")
        line = job_line(answers.values(), all_asked=not errors)
        self._show(f"{self._job.job.name}: {line}")
        for line in overview(self._places, answers, errors):
            self._show(line)
        raise_together(errors.values())

    async def logs(self, query: Query, show: Callable[[Line], None]) -> None:
        """Show what the processes have written, in the order of time."""
        chosen = {
            place.key: names
            for place in self._places
            if (names := [p.name for p in place.processes if query.wants(p.name)])
        }
        if not chosen:
            which = " ".join(str(part) for part in (query.role, query.rank) if part is not None)
            raise UserError(f"the job has no {which}; status lists its processes")
        found = InOrder(show, at_once=query.follow)
        async with self._all([p for p in self._places if p.key in chosen]) as remotes, found:
            await all_of(
                remotes,
                lambda remote: remote.logs(
                    found.add, names=tuple(chosen[remote.place.key]), query=query
                ),
            )

    async def stop(self) -> None:
        """End everything with care: the coordinator is asked first, then signals.

        TryAgain names the hosts that can't be reached.
        """
        async with self._reachable() as (remotes, errors):
            told = await self._ask_coordinator(remotes)
            deadlines = self._job.cluster.deadlines
            grace = deadlines.grace + deadlines.stop + _LEEWAY_SECONDS
            if told:
                await self._until_nothing_runs(remotes, grace)
            # Workers need the servers while they finish; the coordinator hears all last words.
            for role in ("worker", "server", COORDINATOR):
                await self._end(remotes, role, grace, errors)
            answers = await ask_some(remotes, errors, "status")
        left = [name for answer in answers.values() for name in _running(answer.processes)]
        if left:
            raise TryAgain(f"{', '.join(left)} did not end; run stop again")
        if answers:
            self._show(f"{self._job.job.name}: nothing runs on {_hosts(len(answers))}")
        also = "; the coordinator has told its processes to end" if told else ""
        raise_together(type(error)(f"{error}{also}") for error in errors.values())

    # -- parts of them --

    def _check_coordinator(self, answers: Answers) -> None:
        """New processes must meet those that run already."""
        processes = [process for place in self._places for process in place.processes]
        wanted = next(process.env["COORDINATOR"] for process in processes)
        for answer in answers.values():
            for state in answer.processes:
                if state.running and state.coordinator not in ("", wanted):
                    raise UserError(
                        f"{state.name} of this job runs already with its coordinator at "
                        f"{state.coordinator}, not {wanted}: stop the job first, or give its "
                        "--coordinator-port"
                    )

    async def _check_idle(self, remote: Remote) -> None:
        try:
            running = _running((await remote.ask("status")).processes)
        except UserError:
            running = []  # no code yet, or none that works: that is why it comes
        if running:
            raise UserError(
                f"host {remote.name}: {', '.join(running)} of this job runs there and would find "
                "other code in the middle; stop it first"
            )

    async def _prepare(self, remotes: Sequence[Remote], token: str) -> None:
        """The job file and the token on every host; and do all see where checkpoints will be?

        Every process reads and writes them, under the path that they have for the coordinator.
        """
        answers = await all_of(
            remotes, lambda remote: remote.ask("prepare", job=self._text, token=token)
        )
        first = next(remote for remote in remotes if remote.place.coordinates)
        path = answers[first.place.key].checkpoints
        if not path:
            return
        seen = await all_of(remotes, lambda remote: remote.ask("sees", path=path))
        blind = [remote.name for remote in remotes if not seen[remote.place.key].sees]
        if blind:
            raise UserError(
                f"checkpoints will be in {path} of host {first.name}, which {', '.join(blind)} "
                "can't see: set checkpoint.path to a directory that all hosts share, or "
                "checkpoint.every.epochs to null for a job without checkpoints"
            )

    async def _token(self, remotes: Sequence[Remote], answers: Answers) -> str:
        """The one that running processes share, or a new one."""
        for remote in remotes:
            if _running(answers[remote.place.key].processes):
                token = (await remote.ask("token")).token
                if token:
                    return token
        return secrets.token_urlsafe(24)

    async def _until_it_trains(self, remotes: Sequence[Remote]) -> None:
        deadlines = self._job.cluster.deadlines
        seconds = deadlines.rendezvous + deadlines.server_start + _LEEWAY_SECONDS
        deadline = time.monotonic() + seconds
        while True:
            answers = await self._ask_all(remotes)
            for remote in remotes:
                _raise_failure(remote, answers[remote.place.key])
            status, line = job_status(answers.values()), job_line(answers.values())
            if status is not None and status.job in ("failed", "stopping"):
                raise end_of(state_of(status))
            begun = status is not None and status.job != "waiting"
            if begun or any(answer.result for answer in answers.values()):
                self._show(f"{self._job.job.name}: {line}")
                return
            if time.monotonic() > deadline:
                raise TryAgain(
                    f"{self._job.job.name} has not begun within {seconds:g} s: {line}; its "
                    "processes go on, look at status and logs"
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def _ask_coordinator(self, remotes: Sequence[Remote]) -> bool:
        """Whether it heard that the job is to stop."""
        for remote in remotes:
            if remote.place.coordinates:
                try:
                    answer = await remote.ask("status")
                    if answer.job is not None:
                        await remote.ask("ask")
                        return True
                except FleetError as error:
                    self._show(f"the coordinator was not told: {error}")
        return False

    async def _until_nothing_runs(self, remotes: Sequence[Remote], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            answers = await ask_some(remotes, {}, "status")
            if not any(_running(answer.processes) for answer in answers.values()):
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _end(
        self, remotes: Sequence[Remote], role: str, grace: float, errors: Errors
    ) -> None:
        """All of a role, also what an earlier job file has started there."""
        able = [remote for remote in remotes if remote.place.key not in errors]
        await ask_some(able, errors, "end", role=role, grace=grace)

    # -- all hosts --

    def _reachable(
        self, places: Sequence[Placement] = ()
    ) -> AbstractAsyncContextManager[tuple[list[Remote], Errors]]:
        return reachable(places or self._places, self._job.job.name, accept_new=self._accept_new)

    @asynccontextmanager
    async def _all(self, places: Sequence[Placement] = ()) -> AsyncIterator[list[Remote]]:
        async with self._reachable(places) as (remotes, errors):
            raise_together(errors.values())
            yield remotes

    async def _ask_all(self, remotes: Sequence[Remote]) -> Answers:
        return await all_of(remotes, lambda remote: remote.ask("status"))


def _raise_failure(remote: Remote, answer: Answer) -> None:
    """Of a process that was to run there and has ended other than well."""
    names = {process.name for process in remote.place.processes}
    for state in answer.processes:
        if state.name in names and not state.running and state.code != EXIT_OK:
            kind = UserError if state.code == EXIT_USER else TryAgain
            raise kind(f"host {remote.name}: {state.name}: {process_words(state)}")


def _running(states: Sequence[ProcessState]) -> list[str]:
    return [state.name for state in states if state.running]


def _hosts(number: int) -> str:
    return f"{number} host{'s' * (number != 1)}"
