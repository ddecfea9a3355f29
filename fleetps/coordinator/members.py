"""Who takes part: ranks, states, and when each was last heard of."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet_config.errors import FleetError, TryAgain, UserError
from fleetps.coordinator.base import Base
from fleetps.coordinator.reports import MISSED_HEARTBEATS, MemberRole, MemberState
from fleetps.coordinator.schema import MemberRow

# A member that missed so many may be dead: another one that comes for its place gets it.
_DOUBTED_HEARTBEATS = 2.5


@dataclass
class Member:
    instance: str
    role: MemberRole
    rank: int
    address: str
    state: MemberState
    active: bool  # has asked for work at least once, so it may have something to flush
    generation: int  # for which it last registered
    last_seen: float
    heard: bool = True  # since this coordinator process began
    returns: bool = False  # its process died, and whoever watches it starts it again
    load: dict[str, float] = field(default_factory=dict)  # of its process, see `protocol`
    unreachable: int = -1  # rank of a server that a worker can't reach, as far as is known

    @property
    def name(self) -> str:
        return f"{self.role} {self.rank}"

    @property
    def live(self) -> bool:
        return self.state != "exited"


class Members:
    def __init__(self, base: Base) -> None:
        self._store = base.store
        self._clock = base.clock
        self._servers = base.servers
        self._silence = base.job.cluster.heartbeat * _DOUBTED_HEARTBEATS
        self._missed = base.job.cluster.heartbeat * MISSED_HEARTBEATS
        self._refused: dict[str, float] = {}  # since when, by address
        self._moved: set[str] = set()  # workers with another rank than the one they came for
        # The present generation, and how many workers must come before its work begins.
        self.generation = 0
        self._workers = base.workers
        # In mode sync those with lower ranks are all waited for, under these ranks.
        self._movable_from = base.workers if "sync" in base.job.mode_names else 0
        self._all: dict[str, Member] = {}
        self.reload()

    def reload(self) -> None:
        """Believe the store again (at the start, or after a transaction failed)."""
        now = self._clock()
        rows = self._store.members()
        self._all = {row.instance: Member(**vars(row), last_seen=now, heard=False) for row in rows}
        if (job := self._store.job()) is not None:
            self.generation, self._workers = job.generation, job.workers

    def get(self, instance: str) -> Member:
        member = self._all.get(instance)
        if member is None:
            raise TryAgain(
                f"the coordinator does not know instance {instance!r} (it was started anew?); "
                "start this process again"
            )
        return member

    def name_of(self, instance: str) -> str:
        return self.get(instance).name

    def worker(self, instance: str) -> Member:
        member = self.get(instance)
        if member.role != "worker":
            raise UserError(f"{member.name} asked for work, which only workers do")
        return member

    def live(self, role: MemberRole) -> list[Member]:
        """By rank."""
        found = [member for member in self._all.values() if member.role == role and member.live]
        return sorted(found, key=lambda member: member.rank)

    def all_live(self) -> list[Member]:
        return [member for member in self._all.values() if member.live]

    def count(self, role: MemberRole) -> int:
        return sum(member.role == role and member.live for member in self._all.values())

    def ever(self, role: MemberRole) -> list[Member]:
        """By rank; of a rank that was given again, the last holder."""
        by_rank: dict[int, Member] = {}
        for member in self._all.values():
            if member.role == role and (member.live or member.rank not in by_rank):
                by_rank[member.rank] = member
        return [by_rank[rank] for rank in sorted(by_rank)]

    def current(self, member: Member) -> bool:
        """It takes part in the present generation; others are about to end their processes."""
        return member.live and member.generation == self.generation

    def took_part(self, member: Member) -> bool:
        """It is a member of the present generation, or was until it died."""
        return member.generation == self.generation

    def begin_generation(self, number: int, workers: int) -> None:
        """Everybody has to register again.

        Servers get what they begin with from worker 0; where that one has left, another is it now.
        """
        self.generation, self._workers = number, workers
        workers_left = self.live("worker")
        movable = [one for one in workers_left if one.rank >= self._movable_from]
        if movable and all(one.rank for one in workers_left):
            movable[0].rank = 0
            self._moved.add(movable[0].instance)
        for member in self.all_live():
            _forget_process(member)
            member.state = "registered"
            self._save(member)

    def replaced(self, member: Member) -> bool:
        """Another live member has its rank."""
        others = (other for other in self.live(member.role) if other is not member)
        return any(other.rank == member.rank for other in others)

    def join(
        self, role: MemberRole, instance: str, address: str, rank: int | None
    ) -> tuple[Member, bool]:
        """The member, and whether it is new in this generation."""
        known = self._all.get(instance)
        if known is not None and known.live:
            if known.role != role:
                raise UserError(f"instance {instance!r} is {known.name} already, not a {role}")
            self.seen(known)
            if self.current(known):
                return known, False
            self._check_address(role, address, known.rank)
            known.generation, known.address = self.generation, address
            self.set_gone(known, "registered")
            return known, True
        rank = self._rank(role, address, rank)
        now, generation = self._clock(), self.generation
        member = Member(instance, role, rank, address, "registered", False, generation, now)
        self._save(member)
        self._all[instance] = member
        return member, True

    def followed(
        self, role: MemberRole, instance: str, address: str, rank: int | None
    ) -> Member | None:
        """Whom this one takes the place of: itself after a restart, or a dead server."""
        known = self._all.get(instance)
        if known is not None and known.live:
            at_work = known.state in ("serving", "running")
            return known if self.current(known) and at_work else None
        if role != "server":
            return None
        taken = self.live("server")
        if rank is None and len(taken) < self._servers:
            same = (one for one in taken if one.address == address)
            return next((one for one in same if self._doubted(one)), None)
        doubted = [one for one in taken if self._doubted(one) and rank in (None, one.rank)]
        return min(doubted, key=lambda one: one.address != address, default=None)

    def _doubted(self, member: Member) -> bool:
        return not member.heard or self._clock() - member.last_seen > self._silence

    def _rank(self, role: MemberRole, address: str, rank: int | None) -> int:
        taken = {member.rank: member for member in self.live(role)}
        moved = role == "worker" and rank in taken and taken[rank].instance in self._moved
        if rank is None or moved:
            rank = next(free for free in range(len(taken) + 1) if free not in taken)
        if role == "server":
            self._check_server(address, rank, taken)
        if rank in taken:
            holder = taken[rank]
            raise TryAgain(
                f"{role} rank {rank} is taken by {holder.address} (instance {holder.instance!r}), "
                f"heard of {self._clock() - holder.last_seen:.0f} s ago; give each {role} its own "
                "rank, or try again when that one is gone"
            )
        return rank

    def _check_server(self, address: str, rank: int, taken: dict[int, Member]) -> None:
        gone = [
            f"{holder.name} ({holder.address})"
            for holder in taken.values()
            if self._doubted(holder) or not self.current(holder)
        ]
        if rank >= self._servers and gone:
            raise TryAgain(
                f"server {address} has no place yet: {', '.join(gone)} may still come back; "
                "try again in a little while"
            )
        if rank >= self._servers:
            raise self._refusal(
                address,
                f"server {address} has no place: the job has {self._servers} "
                f"server{'s' if self._servers != 1 else ''} (cluster.servers), ranks from 0",
            )
        self._check_address("server", address, rank)

    def _check_address(self, role: MemberRole, address: str, rank: int) -> None:
        for holder in self.live(role) if role == "server" else ():
            if holder.address == address and holder.rank != rank:
                raise self._refusal(
                    address,
                    f"server {rank} and {holder.name} both give the address {address}; "
                    "each server needs an endpoint of its own",
                )

    def _refusal(self, address: str, sentence: str) -> FleetError:
        """A mistake, unless the new process takes the place of one that has just died."""
        now = self._clock()
        since = self._refused.setdefault(address, now)
        if now - since < self._missed:
            return TryAgain(f"{sentence}; or has one died that is not missed yet?")
        return UserError(sentence)

    def seen(self, member: Member) -> None:
        member.last_seen = self._clock()
        member.heard = True
        member.returns = False

    def set_state(self, member: Member, state: MemberState) -> None:
        member.state = state
        self._save(member)

    def set_gone(self, member: Member, state: MemberState) -> None:
        """Its process is gone, and with it what it might have flushed."""
        _forget_process(member)
        self.set_state(member, state)

    def set_active(self, member: Member) -> None:
        if not member.active:
            member.active = True
            self._save(member)

    def _save(self, member: Member) -> None:
        row = MemberRow(
            member.instance,
            member.role,
            member.rank,
            member.address,
            member.state,
            member.active,
            member.generation,
        )
        self._store.save_member(row)

    # -- rendezvous --

    def endpoints(self) -> tuple[str, ...]:
        """The servers' endpoints by rank, once all have registered."""
        servers = self._present("server")
        return tuple(s.address for s in servers) if len(servers) == self._servers else ()

    def unregistered(self) -> list[str]:
        found = []
        expectations: dict[MemberRole, int] = {"server": self._servers, "worker": self._workers}
        for role, expected in expectations.items():
            ranks = {member.rank for member in self._present(role)}
            # Rank 0 can't be replaced by a number too high: worker 0 initialises the dense weights.
            lacking = max(expected - len(ranks), int(0 not in ranks))
            found += [f"{role} {rank}" for rank in range(expected) if rank not in ranks][:lacking]
        return found

    def not_serving(self) -> list[Member]:
        return [server for server in self._present("server") if server.state != "serving"]

    def _present(self, role: MemberRole) -> list[Member]:
        """Who has registered for this generation, by rank."""
        return [member for member in self.live(role) if self.current(member)]

    def missing(self) -> tuple[str, ...]:
        """For people: who is not there yet, and what for."""
        absent = [f"{name} (not registered)" for name in self.unregistered()]
        silent = [f"{s.name} ({s.address}, registered, not serving)" for s in self.not_serving()]
        return tuple(absent + silent)


def _forget_process(member: Member) -> None:
    """What its process had done and said means nothing for the next one."""
    member.active = False
    member.load = {}
    member.unreachable = -1
