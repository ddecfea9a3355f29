"""The files of Compose: both its versions read them, and they say what they should."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
import yaml
from stack import ROOT

pytestmark = pytest.mark.docker

FILES = ("docker-compose.yml", "docker-compose.static.yml")
_PLUGINS = ("/usr/local/lib/docker/cli-plugins", "/usr/libexec/docker/cli-plugins")


def programs() -> list[str]:
    found = [shutil.which("docker-compose"), *(f"{place}/docker-compose" for place in _PLUGINS)]
    return [program for program in found if program and os.access(program, os.X_OK)]


@pytest.mark.parametrize("file", FILES)
def test_every_compose_here_reads_it(file: str) -> None:
    found = programs()
    if not found:
        pytest.skip("no docker-compose is installed: tests/docker/prepare.sh")
    for program in found:
        profiles = [f"--profile={name}" for name in ("done", "gpu", "monitoring", "tls")]
        done = subprocess.run(
            [program, "--file", file, *profiles, "config", "--quiet"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, ""), f"{program}: {done.stderr}"


@pytest.mark.parametrize("file", FILES)
def test_every_service_is_confined(file: str) -> None:
    services = yaml.safe_load((ROOT / file).read_text())["services"]
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "restart" in service or name == "tls-certs", name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} is published to everybody"
        once = name in ("setup", "tls-certs")
        assert once or {"mem_limit", "cpus", "pids_limit"} <= service.keys(), name


def test_no_server_or_worker_is_in_a_network_that_leads_out() -> None:
    for file in FILES:
        whole = yaml.safe_load((ROOT / file).read_text())
        assert whole["networks"]["cluster"] == {"internal": True}
        for name, service in whole["services"].items():
            if re.search("server|worker", name) and "network_mode" not in service:
                assert list(service["networks"]) == ["cluster"], name


def test_every_variable_is_in_the_example() -> None:
    used = set()
    for file in FILES:
        used |= set(re.findall(r"\$\{([A-Z_]+):-", (ROOT / file).read_text()))
    text = (ROOT / ".env.example").read_text()
    assert set(re.findall(r"^#?([A-Z_]+)=", text, re.MULTILINE)) == used
    defaults = dict(re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE))
    for file in FILES:
        for name, default in re.findall(r"\$\{([A-Z_]+):-([^}]+)\}", (ROOT / file).read_text()):
            assert defaults[name] == default, name
