"""The plumbing of k8s/smoke.sh: options, report, exit code, what it removes.

No claim is tested here: kubectl and curl are stubs (kubectl_stub.py), and no cluster was at hand.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest
import yaml
from findings import findings
from manifests import ROOT, load

from fleetps.coordinator.reports import MemberState, Status

SCRIPT = ROOT / "k8s" / "smoke.sh"
STUB = Path(__file__).with_name("kubectl_stub.py")
_CURL = """#!/bin/sh
case "$*" in *-u*) printf 200 ;; *status*) printf 401 ;; esac
"""


@dataclass
class Stubs:
    directory: Path

    def run(self, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        given = {
            "STUB": str(self.directory),
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
            "SMOKE_POLL": "0",
            "TMPDIR": str(self.directory / "tmp"),
        }
        return subprocess.run(
            [str(SCRIPT), *args],
            env={**os.environ, **given, **environ},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def fault(self, pattern: str, code: int, text: str) -> None:
        (self.directory / "faults").write_text(f"{pattern}\t{code}\t{text}\n")

    @property
    def calls(self) -> str:
        file = self.directory / "calls"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def stubs(tmp_path) -> Stubs:
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    for name, text in (
        ("kubectl", f'#!/bin/sh\nexec "{sys.executable}" -IS "{STUB}" "$@"\n'),
        ("curl", _CURL),
        ("sleep", "#!/bin/sh\n"),
    ):
        file = tmp_path / "bin" / name
        file.write_text(text)
        file.chmod(0o755)
    return Stubs(tmp_path)


def claims() -> list[str]:
    return re.findall(r"^claim_([a-z_]+)\(\) \{$", SCRIPT.read_text(), re.MULTILINE)


def test_every_claim_is_listed_and_says_what_it_is(stubs) -> None:
    lines = [line.split(maxsplit=1) for line in stubs.run("--list").stdout.splitlines()]
    assert [name for name, _ in lines] == claims()
    assert len({text for _, text in lines}) == len(lines) >= 15
    assert stubs.calls == ""


def test_the_docs_name_every_claim() -> None:
    text = (ROOT / "docs" / "kubernetes-not-tested.md").read_text()
    assert sorted(set(re.findall(r"k8s/smoke\.sh ([a-z_]+)`", text))) == sorted(claims())


def test_what_it_asks_the_status_for_is_there() -> None:
    asked = set(re.findall(r"\bs\['(\w+)'\]", SCRIPT.read_text()))
    assert {"generation", "rows_done"} <= asked <= set(Status.model_fields)
    assert set(re.findall(r"one\['state'\] == '(\w+)'", SCRIPT.read_text())) <= {
        *get_args(MemberState)
    }


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nosuch"], "there is no claim nosuch"),
        (["--fast"], "--fast is not an option"),
        (["--image"], "--image needs a value"),
        (["--overlay", "/nowhere"], "no kustomization.yaml in /nowhere"),
    ],
)
def test_wrong_usage(stubs, args, said) -> None:
    done = stubs.run(*args)
    assert (done.returncode, stubs.calls) == (2, "")
    assert said in done.stderr


def test_no_cluster(stubs) -> None:
    stubs.fault("^version", 1, "connection refused")
    done = stubs.run("valid")
    assert done.returncode == 2
    assert "no cluster answers: connection refused" in done.stderr


def test_help_tells_the_options(stubs) -> None:
    assert "--keep" in stubs.run("--help").stdout


def test_a_claim_that_holds(stubs) -> None:
    done = stubs.run("valid", "--namespace", "try")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^pass  valid +\d+ s  the API server takes", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("1 of 1 claims hold\n")
    assert "create namespace try-valid" in stubs.calls
    assert "delete namespace try-valid" in stubs.calls.splitlines()[-1]
    assert list((stubs.directory / "tmp").iterdir()) == []


def test_a_claim_that_does_not_hold(stubs) -> None:
    stubs.fault("^apply --dry-run=server", 0, "Warning: unknown field spec.x")
    done = stubs.run("valid", "restricted")
    assert done.returncode == 1
    assert re.search(r"^FAIL  valid .*\n      Warning: unknown field spec\.x$", done.stdout, re.M)
    assert re.search(r"^pass  restricted", done.stdout, re.MULTILINE)
    assert "1 of 2 claims hold" in done.stdout
    assert "delete namespace fleetps-smoke-valid fleetps-smoke-quick" in stubs.calls


def test_a_claim_that_takes_too_long_says_for_what_it_waited(stubs) -> None:
    stubs.fault("conditions", 0, "")
    done = stubs.run("mistake", SMOKE_SCALE="0")
    assert done.returncode == 1
    assert "waited 0 s for the Job to fail" in done.stdout


def test_keep(stubs) -> None:
    done = stubs.run("--keep", "mistake")
    assert "left as they are: fleetps-smoke-wrong" in done.stdout
    assert "delete namespace" not in stubs.calls


def test_claims_about_the_same_job_share_it(stubs) -> None:
    assert stubs.run("names", "rights", "page").returncode == 0
    assert stubs.calls.count("create namespace") == 1
    assert len(re.findall("^apply", stubs.calls, re.MULTILINE)) == 1


def test_all_claims_go_through(stubs) -> None:
    done = stubs.run()
    assert done.returncode == 0, done.stdout
    passed = re.findall(r"^pass  (\S+)", done.stdout, re.MULTILINE)
    assert passed == claims()


@pytest.mark.parametrize(
    ("claim", "fault", "said"),
    [
        ("restricted", ("run stranger", 0, ""), "Pod Security Admission is off"),
        ("network", (r"server-0\S+', 6174", 0, ""), "reaches a server's port"),
        ("network", ("kubernetes.default", 1, ""), "this shows nothing"),
        ("watchers", (r"server-0\S+', 6174", 0, ""), "a watcher reaches a server's port"),
        ("rights", ("id -u", 0, "0"), "runs as user 0"),
        ("disruption", ("eviction", 0, ""), "two servers could be evicted"),
        ("done", ("test -s", 1, ""), "no result.json"),
        ("page", ("get secret", 0, "dG9rZW4="), None),
    ],
)
def test_what_is_not_so_is_told(stubs, claim, fault, said) -> None:
    stubs.fault(*fault)
    done = stubs.run(claim)
    assert done.returncode == (0 if said is None else 1)
    assert (said or "pass") in done.stdout


@pytest.mark.parametrize("kind", ["quick", "long", "wrong"])
def test_the_jobs_that_it_makes_are_whole(stubs, kind) -> None:
    """With an image of one's own."""
    claim = {"quick": "restricted", "long": "names", "wrong": "mistake"}[kind]
    image = "registry.example.com:5000/fleetps@sha256:" + "0" * 64
    keep = stubs.directory / "applied.yaml"
    stub = stubs.directory / "bin" / "kubectl"
    stub.write_text(
        f'#!/bin/sh\n[ "$1 $2" != "apply -f" ] || cp "$3" "{keep}"\n{stub.read_text()[10:]}'
    )
    real = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert real
    assert stubs.run("--image", image, claim, REAL_KUBECTL=real).returncode == 0
    objects = load(keep.read_text())
    found = findings(objects)
    assert (found == []) == (kind != "wrong"), found
    assert {one["metadata"]["namespace"] for one in objects} == {f"fleetps-smoke-{kind}"}
    images = {c["image"] for one in objects for c in _containers(one)}
    assert images == {image}
    (job,) = (
        yaml.safe_load(one["data"]["job.yaml"]) for one in objects if one["kind"] == "ConfigMap"
    )
    assert (job["job"]["epochs"] > 1000) == (kind == "long")


def _containers(one: dict) -> list[dict]:
    return one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
