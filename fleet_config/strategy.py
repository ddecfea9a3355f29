"""From the job's mode to the settings that Fleet needs, as a plain object.

Turned into Paddle's DistributedStrategy where Paddle is imported, never here.
"""

from dataclasses import dataclass

from fleet_config.errors import UserError

AVAILABLE_MODES = ("async",)


@dataclass(frozen=True)
class Strategy:
    """Fleet's two switches: a_sync off = synchronous; k_steps > 0 = geo."""

    a_sync: bool
    k_steps: int


def strategy_of(mode: str) -> Strategy:
    """The settings of a mode."""
    if mode not in AVAILABLE_MODES:
        raise UserError(f"mode {mode} is not available in this version; use async")
    return Strategy(a_sync=True, k_steps=0)
