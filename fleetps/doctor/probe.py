"""Run as `python -m fleetps.doctor.probe`: looks at Paddle in a process of its own.

Reads {"model": name, "params": {...}} or {} on standard input; its last line of output is a Probe
as JSON. A process of its own, because loading Paddle takes seconds and a broken one may crash.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from fleet_config.errors import FleetError, TryAgain

_PATIENCE = 120.0


@dataclass(frozen=True)
class Probe:
    """What is wrong with the installation and with the model, if anything."""

    paddle: str
    problem: str
    model_problem: str


def probe(model: dict[str, Any]) -> Probe:
    """Loads Paddle elsewhere and checks the model's name and parameters."""
    command = [sys.executable, "-m", "fleetps.doctor.probe"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(model),
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TryAgain(f"Paddle was not loaded within {_PATIENCE:.0f} s; try again") from None
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        problem = f"Paddle can't be loaded (exit code {done.returncode}): {last}"
        return Probe("", problem, "")
    return Probe(**json.loads(lines[-1]))


def _look(model: dict[str, Any]) -> Probe:
    try:
        from fleetps import paddle_compat  # noqa: F401, PLC0415  raises where Paddle won't do
    except FleetError as error:
        return Probe("", str(error), "")
    import paddle  # noqa: PLC0415  only after that check

    version = str(paddle.__version__)
    if not model:
        return Probe(version, "", "")
    from fleetps import models  # noqa: PLC0415  needs Paddle

    try:
        models.parse_params(model["model"], model["params"])
    except FleetError as error:
        return Probe(version, "", str(error))
    return Probe(version, "", "")


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(asdict(_look(json.load(sys.stdin))))}\n")
