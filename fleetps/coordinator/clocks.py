"""Who may go how far in mode bounded: nobody more than `staleness` steps ahead of the slowest.

Stale-synchronous training (Ho et al., "More effective distributed ML via a stale synchronous
parallel parameter server", 2013) among workers that come and go. Every worker counts its own steps;
an offset per worker turns them into a common clock. Kept in memory only: after a restart of the
coordinator all begin level with whoever asks first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Hand:
    """One worker's place: its own step count, and what to add to it for the common clock."""

    steps: int
    offset: int

    @property
    def clock(self) -> int:
        return self.steps + self.offset


@dataclass(frozen=True)
class Reading:
    """In the asking worker's own steps: how far it may go, and where the slowest stands."""

    limit: int
    slowest: int


@dataclass(frozen=True)
class Lead:
    """Where a worker stands on the common clock, and how far ahead of the slowest that is."""

    clock: int
    ahead: int


class Clocks:
    """The workers of one epoch that are in the race, by their instance.

    A worker that enters starts where the slowest stands that is waited for. When one leaves, those
    further back, for whom nobody waited (beyond the quorum), enter anew: otherwise the others might
    have to wait until they have caught up. So the slowest place never goes back, and no lead
    exceeds the staleness.
    """

    def __init__(self, staleness: int, quorum: float) -> None:
        self._staleness = staleness
        self._quorum = quorum
        self._hands: dict[str, Hand] = {}
        self._slowest = 0

    def read(self, worker: str, steps: int) -> Reading:
        """A worker says how many steps it has completed; it enters if it isn't in the race."""
        hand = self._hands.get(worker)
        if hand is None:
            hand = self._hands[worker] = Hand(steps, self._slowest - steps)
        hand.steps = max(hand.steps, steps)
        self._move_slowest()
        slowest = self._slowest - hand.offset
        return Reading(slowest + self._staleness, slowest)

    def leave(self, worker: str) -> None:
        """It is lost, has left or has nothing to do; unknown workers may leave too."""
        if self._hands.pop(worker, None) is None:
            return
        self._hands = {
            name: hand for name, hand in self._hands.items() if hand.clock >= self._slowest
        }
        self._move_slowest()

    def lead(self, worker: str) -> Lead | None:
        """None while it is not in the race."""
        hand = self._hands.get(worker)
        if hand is None:
            return None
        return Lead(hand.clock, max(hand.clock - self._slowest, 0))

    def _move_slowest(self) -> None:
        if not self._hands:
            return
        clocks = sorted(hand.clock for hand in self._hands.values())
        # Rounded against floats: 0.8 of 5 are exactly 4.
        waited_for = math.ceil(self._quorum * len(clocks) - 1e-9)
        self._slowest = clocks[len(clocks) - waited_for]
