"""Runs TensorFlow's parameter servers (peers/tensorflow_ps.py) in their own environment."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import venv
from pathlib import Path

from setups import VOCABULARY, Data, Setup

PEERS = Path(__file__).parent / "peers"
VENV = PEERS / ".venv"
SECONDS = 300.0
# The best of what was tried: docs/performance.md.
BEST = {"unique": 1, "intra": 0, "inter": 0}
STEPS = {512: 50, 2048: 25}


def prepare() -> None:
    """Make the virtual environment, unless it is there."""
    ready = VENV / ".ready"
    if ready.exists():
        return
    venv.create(VENV, with_pip=True, clear=True)
    requirements = PEERS / "requirements-tensorflow.txt"
    pip = [VENV / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "-r", requirements], check=True)
    ready.touch()


def measure(setup: Setup, data: Data, **options: object) -> float:
    """Examples per second: median of the passes."""
    settings = {
        "vocabulary": VOCABULARY,
        "batch": setup.batch,
        "optimizer": setup.optimizer,
        "steps": STEPS[setup.batch],
        **BEST,
        **options,
    }
    done = subprocess.run(
        [
            VENV / "bin" / "python",
            PEERS / "tensorflow_ps.py",
            data.records,
            *(f"--{key}={value}" for key, value in settings.items()),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{setup.name} failed:\n{done.stderr[-3000:]}")
    rates = json.loads(done.stdout.splitlines()[-1])["rates"]
    return statistics.median(rates)
