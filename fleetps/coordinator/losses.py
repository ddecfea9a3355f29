"""How members are: what they held goes back when they die, and the job goes on while it can."""

from __future__ import annotations

from fleet_config.errors import EXIT_USER
from fleetps.coordinator.base import Base
from fleetps.coordinator.generations import Generations
from fleetps.coordinator.lifecycle import Death, Lifecycle
from fleetps.coordinator.members import Member, Members
from fleetps.coordinator.pace import Pace
from fleetps.coordinator.reports import MemberState
from fleetps.coordinator.task_queue import TaskQueue

_MOST_KEPT = 20
_LOST, _LEFT = "worker-lost", "worker-left"
_NEEDED = "in mode sync the other workers can't go on without it"
_UNREPORTED = "its agent had ended, and nobody could say so"
_LOADS = "it was loading the checkpoint"


class Losses:
    def __init__(
        self,
        base: Base,
        members: Members,
        life: Lifecycle,
        queue: TaskQueue,
        pace: Pace,
        generations: Generations,
    ) -> None:
        self._job = base.job
        self._workers = base.workers
        self._events = base.events
        self._members = members
        self._life = life
        self._queue = queue
        self._pace = pace
        self._generations = generations
        # For displays: how many were lost while the job went on, and what the last ones died of.
        told = [f"{who}: {text}" for who, text in base.store.events_of(_LOST)]
        self.count = len(told)
        self.sentences = told[-_MOST_KEPT:]

    def news(self, member: Member, state: MemberState, generation: int | None) -> bool:
        """It is in another state than before. All but the last are of the present generation."""
        if not member.live or member.state == state:
            return False
        told = generation is None or generation == self._members.generation
        return state == "exited" or (told and self._members.current(member))

    def heard(self, member: Member, state: MemberState) -> None:
        if state == "exited":
            self.left(member)
        else:
            self._members.set_state(member, state)
            self._events.add(state, member.name, f"is {state} at {member.address}")

    def left(self, member: Member) -> None:
        """It said so itself, or its process ended as it should."""
        tasks = self._let_go(member)
        self._members.set_gone(member, "exited")
        needed = not self._life.over and self._members.took_part(member)
        if member.role == "worker" and needed and self._life.row.phase != "finish":
            self._events.add(_LEFT, member.name, f"has left; {self._after(tasks)}")
        else:
            self._events.add("left", member.name, f"left with {tasks} tasks" if tasks else "left")
        if not needed:
            return
        if member.role == "server":
            self._server_lost(member, Death("ended before the job was done"))
        elif self.in_group(member):
            self._generations.open(member.name, Death(f"left before the job was done; {_NEEDED}"))

    def _after(self, tasks: int) -> str:
        """What a worker leaves behind."""
        others = len(self._members.live("worker"))
        held = f"it held {tasks} tasks, and " if tasks else ""
        if others == 0:
            return f"{held}the job waits for another worker"
        return f"{held}the other{'s go' if others > 1 else ' goes'} on"

    def silent(self, member: Member, reason: str) -> None:
        """Nothing was heard of it for too long."""
        if member.role == "worker":
            self._worker_lost(member, Death(reason), again=False, given_up=False)
            return
        self._members.set_gone(member, "exited")
        if self._life.over or not self._members.took_part(member):
            self._events.add("lost", member.name, reason)
        else:
            self._server_lost(member, Death(reason))

    def _server_lost(self, member: Member, death: Death) -> None:
        row = self._life.row
        if row.phase == "finish":
            # The workers are ending, and what was learnt is in the last checkpoint.
            self._events.add("lost", member.name, death.reason)
        elif row.state == "waiting":
            # A mistake in the set-up more likely than an accident: nothing has begun yet.
            self._life.fail_by_death(member.name, death)
        else:
            self._generations.open(member.name, death)

    def followed(self, member: Member, instance: str, address: str) -> None:
        """Another process has come for the place of this one: so what it held is lost."""
        if member.role == "worker":
            self._worker_lost(member, Death(_UNREPORTED), again=True, given_up=False)
            return
        if instance != member.instance:
            self._members.set_gone(member, "exited")
        if self._life.row.phase == "rendezvous" and address == member.address:
            self._members.set_state(member, "registered" if member.live else "exited")
            return
        self._generations.open(member.name, Death(f"was started again at {address}"))

    def failed(self, member: Member, death: Death, *, again: bool) -> None:
        """Its process has ended as it should not; `again`: it is about to be started again."""
        if death.exit_code == EXIT_USER or (
            member.role == "server" and not again and not self._life.over
        ):
            self._life.fail_by_death(member.name, death)
        elif not self._members.took_part(member):
            member.returns = again  # it belongs to a generation that has ended anyway
        elif member.role == "server":
            member.returns = again
            self._server_lost(member, death)
        else:
            self._worker_lost(member, death, again=again, given_up=not again)

    def in_group(self, member: Member) -> bool:
        """The other workers can't make a step without it, or it alone has the dense parameters."""
        return self._in_sync and member.rank < self._workers

    @property
    def grouped(self) -> bool:
        """Workers are joined in the present epoch: mode sync, more than one worker."""
        return self._in_sync and self._workers > 1

    @property
    def _in_sync(self) -> bool:
        row = self._life.row
        at_work = row.phase not in ("rendezvous", "finish")
        return at_work and self._job.mode_of(row.epoch).name == "sync"

    def _let_go(self, member: Member) -> int:
        """Take back what it held; nobody waits for it any longer. The number of its tasks."""
        self._pace.leave(member.instance)
        return self._queue.release(member)

    def _worker_lost(self, member: Member, death: Death, *, again: bool, given_up: bool) -> None:
        """`given_up`: whoever watched over it won't start it again."""
        grouped, loads = self.in_group(member), self._loads(member)
        took_part = self._members.took_part(member)
        self._let_go(member)
        # Not for one that is needed no more, or whose place another one has taken meanwhile.
        again = again and self._life.row.phase != "finish" and not self._members.replaced(member)
        self._members.set_gone(member, "registered" if again else "exited")
        member.returns = again
        if self._life.over:
            self._events.add("lost", member.name, death.reason)
            return
        if took_part and (grouped or loads) and not given_up:
            self._generations.open(member.name, death.because(_NEEDED if grouped else _LOADS))
            return
        fatal = _NEEDED if grouped else self._fatal()
        if fatal:
            self._life.fail_by_death(member.name, death.because(fatal))
            return
        then = "it is started again" if again else "the job goes on without it"
        text = death.because(then).reason
        self._events.add(_LOST, member.name, text)
        self.count += 1
        self.sentences = [*self.sentences, f"{member.name}: {text}"][-_MOST_KEPT:]

    def _loads(self, member: Member) -> bool:
        """The servers have a part of a checkpoint, and nobody knows which."""
        return self._life.row.phase == "restore" and member.rank == 0

    def _fatal(self) -> str:
        """Why the job can't go on, if so."""
        # Before the work begins a replacement may still come; after it nobody is needed.
        if self._life.row.phase in ("rendezvous", "finish") or self._members.live("worker"):
            return ""
        return "no other worker is left"
