"""What all parts of the coordinator share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleet_config.job import Job
from fleetps.coordinator.events import EventLog
from fleetps.coordinator.reports import MemberRole
from fleetps.coordinator.store import Store
from fleetps.data.dataset import Dataset


@dataclass(frozen=True)
class Base:
    """`clock` measures waiting and never jumps; `wall` is the time of day, kept in the store.

    `servers`, `workers`: how many the job is for (0 and 1 where it is trained locally).
    """

    job: Job
    dataset: Dataset
    store: Store
    events: EventLog
    clock: Callable[[], float]
    wall: Callable[[], float]
    servers: int
    workers: int
    run_dir: Path

    @property
    def wanted(self) -> dict[MemberRole, int]:
        return {"server": self.servers, "worker": self.workers}
