"""The image of all roles and that of the proxies, built without a registry."""

from __future__ import annotations

import shutil
import subprocess
import sys

from engine import Engine
from stack import ROOT

BASE = "fleetps-test-base:local"  # like debian:12-slim
_SECONDS = 400


def build(engine: Engine) -> dict[str, str] | str:
    """Their names by what they are for; or the reason why they can't be made.

    An engine that has built them before is quick: only what has changed is built again.
    """
    if not engine.has(BASE):
        if shutil.which("mmdebstrap") is None:
            return "there is no base image, and mmdebstrap isn't installed: tests/docker/prepare.sh"
        _run(engine, "tests/docker/make_base.sh", BASE, "libgomp1", "python3", "tini")
    # On the host's network, Debian's packages come from where the host has them.
    program = ["scripts/build_image.sh", "--base", BASE]
    network = ["--", "--network=host"]
    _run(engine, *program, "--wheelhouse", "--offline", *network, PYTHON=sys.executable)
    # Both builders read the same file; the older one comes into its own with the smaller image.
    _run(engine, *program, "--tls", *network, DOCKER_BUILDKIT="0")
    return {"fleetps": "fleetps:local", "tls": "fleetps-tls:local"}


def _run(engine: Engine, *command: str, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**engine.environment, "DOCKER_BUILDKIT": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-5000:]}"
