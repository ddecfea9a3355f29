"""Learning-rate schedules as plain functions of the step.

A step is a batch, counted over the whole job: a task knows how many rows were leased before it, so
every worker finds its place without asking.
"""

from __future__ import annotations

import math

from fleet_config.optimizers import CosineSchedule, LinearSchedule, Schedule, StepSchedule


def factor(schedule: Schedule, step: int, total_steps: int) -> float:
    """What the base learning rate is multiplied with at `step` (from 0).

    Args:
        total_steps: batches of the whole job, used where the schedule says `auto`.
    """
    if step < schedule.warmup_steps:
        return (step + 1) / schedule.warmup_steps
    if isinstance(schedule, StepSchedule):
        return float(schedule.gamma ** ((step - schedule.warmup_steps) // schedule.step_size))
    if isinstance(schedule, LinearSchedule | CosineSchedule):
        end = total_steps if schedule.total_steps == "auto" else schedule.total_steps
        part = min(1.0, (step - schedule.warmup_steps) / max(1, end - schedule.warmup_steps))
        left = (
            1.0 - part
            if isinstance(schedule, LinearSchedule)
            else 0.5 * (1.0 + math.cos(math.pi * part))
        )
        return schedule.min_factor + (1.0 - schedule.min_factor) * left
    return 1.0
