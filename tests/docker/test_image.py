"""The image itself."""

from __future__ import annotations

import json
import subprocess

import pytest
from engine import Engine
from stack import ROOT

from fleetps import __version__

pytestmark = pytest.mark.docker

CONFINED = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "tmpfs": {"/tmp": "size=64m"},
    "network_mode": "none",
    "remove": True,
}


def output(engine: Engine, image: str, *command: str, **more) -> str:
    return engine.client.containers.run(image, list(command), **CONFINED, **more).decode()


def test_it_is_small_and_says_what_it_is(engine: Engine, images: dict[str, str]) -> None:
    image = engine.client.images.get(images["fleetps"])
    assert image.attrs["Size"] <= 700e6
    labels, config = image.labels, image.attrs["Config"]
    assert labels["org.opencontainers.image.version"] == __version__
    # Others may have committed since it was built.
    revision = labels["org.opencontainers.image.revision"].removesuffix("-dirty")
    known = ["git", "merge-base", "--is-ancestor", revision, "HEAD"]
    assert subprocess.run(known, cwd=ROOT, check=False).returncode == 0, revision
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"]["Test"] == ["CMD", "python", "-m", "fleetps.health"]
    assert config["Entrypoint"] == ["tini", "--"]
    assert config["Cmd"][:2] == ["python", "train.py"]


def test_it_runs_with_nothing_but_itself(engine: Engine, images: dict[str, str]) -> None:
    script = (
        "id -u; touch /app/x || touch /opt/x || echo refused; cat /proc/1/comm;"
        " fleetps --version; python train.py --help"
    )
    user, writing, first, version, usage, *_ = output(
        engine, images["fleetps"], "sh", "-c", script
    ).splitlines()
    assert (user, writing) == ("10001", "refused")
    assert first == "tini"  # hands signals on and reaps
    assert version.endswith(__version__)
    assert usage.startswith("Usage: train.py")


def test_paddle_loads_and_its_packages_are_those_of_the_lock_file(
    engine: Engine, images: dict[str, str]
) -> None:
    script = (
        "import json, sysconfig, importlib.metadata as m, paddle, pyarrow.parquet;"
        "print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version"
        " for d in m.distributions(path=[sysconfig.get_paths()['purelib'], '/opt/fleetps'])}))"
    )
    text = output(engine, images["fleetps"], "python", "-c", script)
    installed = json.loads(text.splitlines()[-1])
    assert installed.pop("fleetps") == __version__
    locked = (ROOT / "requirements.lock").read_text()
    for name, version in installed.items():
        assert f"{name}=={version}" in locked, f"{name} {version} isn't in requirements.lock"
    assert installed["paddlepaddle"] == "2.6.2"
    assert "pip" not in installed
