"""Many hosts at once: what each gave, or why it gave nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from fleet_config.errors import FleetError
from fleetps.ssh.plan import Placement
from fleetps.ssh.remote import Remote
from fleetps.ssh.words import Answers, Errors

T = TypeVar("T")


@asynccontextmanager
async def reachable(
    places: Iterable[Placement], job: str, *, accept_new: bool
) -> AsyncIterator[tuple[list[Remote], Errors]]:
    """Those hosts that let us in, and why the others don't. `job`: its name."""
    remotes = [Remote(place, job, accept_new=accept_new) for place in places]
    inside, errors = [], {}
    async with AsyncExitStack() as stack:
        for remote, outcome in await _outcomes(remotes, stack.enter_async_context):
            if isinstance(outcome, FleetError):
                errors[remote.place.key] = outcome
            else:
                inside.append(remote)
        yield inside, errors


async def ask_some(
    remotes: Sequence[Remote], errors: Errors, action: str, **more: object
) -> Answers:
    """The answers of those that answer; the errors of others are added to `errors`."""
    answers = {}
    for remote, outcome in await _outcomes(remotes, lambda remote: remote.ask(action, **more)):
        if isinstance(outcome, FleetError):
            errors[remote.place.key] = outcome
        else:
            answers[remote.place.key] = outcome
    return answers


async def all_of(remotes: Sequence[Remote], act: Callable[[Remote], Awaitable[T]]) -> dict[str, T]:
    """What each gave; each comes to its end, and then the errors of all are raised in one."""
    found, errors = {}, []
    for remote, outcome in await _outcomes(remotes, act):
        if isinstance(outcome, FleetError):
            errors.append(outcome)
        else:
            found[remote.place.key] = outcome
    raise_together(errors)
    return found


def raise_together(errors: Iterable[FleetError]) -> None:
    """A line for each; the user's mistakes first, as trying again would not help."""
    found = sorted(errors, key=lambda error: error.exit_code)
    if found:
        raise type(found[0])("\n".join(str(error) for error in found))


async def _outcomes(
    remotes: Sequence[Remote], act: Callable[[Remote], Awaitable[T]]
) -> list[tuple[Remote, T | FleetError]]:
    """Errors that are for people are outcomes; any other is a bug and raised."""
    gathered = await asyncio.gather(*(act(remote) for remote in remotes), return_exceptions=True)
    found: list[tuple[Remote, T | FleetError]] = []
    for remote, outcome in zip(remotes, gathered, strict=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, FleetError):
            raise outcome
        found.append((remote, outcome))
    return found
