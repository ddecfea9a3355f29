"""The parts of the coordinator, each made once and known to those that come after it."""

from __future__ import annotations

from dataclasses import dataclass

from fleetps.coordinator.base import Base
from fleetps.coordinator.checkpoints import Checkpointing
from fleetps.coordinator.divergence import Divergence
from fleetps.coordinator.ending import Ending
from fleetps.coordinator.generations import Generations
from fleetps.coordinator.learners import Learners
from fleetps.coordinator.lifecycle import Lifecycle
from fleetps.coordinator.losses import Losses
from fleetps.coordinator.members import Members
from fleetps.coordinator.notices import Notices
from fleetps.coordinator.pace import Pace
from fleetps.coordinator.phases import Phases
from fleetps.coordinator.result import Result
from fleetps.coordinator.stalls import Stalls
from fleetps.coordinator.stragglers import Stragglers
from fleetps.coordinator.task_maker import TaskMaker
from fleetps.coordinator.task_queue import TaskQueue


@dataclass(frozen=True)
class Parts:
    members: Members
    life: Lifecycle
    queue: TaskQueue
    pace: Pace
    learners: Learners
    checkpoints: Checkpointing
    ending: Ending
    phases: Phases
    generations: Generations
    losses: Losses
    result: Result
    divergence: Divergence
    stragglers: Stragglers
    stalls: Stalls
    notices: Notices


def make_parts(base: Base) -> Parts:
    members = Members(base)
    life = Lifecycle(base)
    queue = TaskQueue(base, members.name_of)
    pace = Pace(base, life, queue)
    notices = Notices(base.events)
    checkpoints = Checkpointing(base, life, queue, notices)
    ending = Ending(base, members, life, queue, checkpoints)
    tasks = TaskMaker(base, life)
    generations = Generations(base, members, life, queue, pace, checkpoints, tasks)
    phases = Phases(base, members, life, checkpoints, ending, tasks)
    return Parts(
        members=members,
        life=life,
        queue=queue,
        pace=pace,
        learners=Learners(base, members),
        checkpoints=checkpoints,
        ending=ending,
        phases=phases,
        generations=generations,
        losses=Losses(base, members, life, queue, pace, generations),
        result=Result(base, life),
        divergence=Divergence(base, life, queue, generations),
        stragglers=Stragglers(base, members, life, queue, notices),
        stalls=Stalls(base, members, life, queue, pace, checkpoints, phases, notices),
        notices=notices,
    )
