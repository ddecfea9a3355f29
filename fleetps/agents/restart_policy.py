"""What starts this process again when it ends, where something does: FLEETPS_RESTART.

Kubernetes sees in an exit code whether it is 0: a StatefulSet starts again whatever ends, and for a
Job 0 says that its work is done.
"""

import os
from typing import Literal, TypeAlias

from fleet_config.errors import UserError
from fleet_config.explain import listed

RESTART = "FLEETPS_RESTART"
Policy: TypeAlias = Literal["", "always", "until-done"]
_POLICIES: tuple[Policy, ...] = ("always", "until-done")


def restart_policy() -> Policy:
    """`always`: after the end of the job this process has to stay, or it would begin anew.
    `until-done`: it may end with 0 only if the job is done.
    """
    text = os.environ.get(RESTART, "").strip()
    if not text:
        return ""
    for policy in _POLICIES:
        if text == policy:
            return policy
    raise UserError(f"{RESTART}={text} is not known; use {listed(_POLICIES, 'or')}")
