"""Each overlay builds, nothing is wrong with it, and it is valid."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import validation
from findings import findings
from manifests import Manifests, Object, load
from overlays import COMPONENTS, EXPECTED, EXTERNAL, OVERLAYS, built, names

NAMES = names()
VERSIONS = validation.VERSIONS
# The oldest whose side-cars end with a Job's pod.
_SIDE_CARS = "1.29.0"


def test_all_that_were_promised_are_there() -> None:
    assert NAMES == [
        "gpu", "jobset", "kueue", "minimal", "monitoring", "paddlejob/kubeflow",
        "paddlejob/paddleflow", "production", "tls", "verify-image", "volcano",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong(name) -> None:
    assert findings(built(name), EXTERNAL.get(name, ())) == EXPECTED.get(name, [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_valid(name, version) -> None:
    if name == "tls" and version == VERSIONS[0]:
        version = _SIDE_CARS
    assert list(validation.complaints(built(name), version)) == []


def test_what_the_cluster_has_to_have_is_valid() -> None:
    queues = load((OVERLAYS / "kueue" / "cluster-queue.yaml").read_text())
    classes = load((COMPONENTS / "priority" / "classes.yaml").read_text())
    assert list(validation.complaints([*queues, *classes], VERSIONS[0])) == []
    named = next(one for one in built("kueue") if one["kind"] == "LocalQueue")
    assert named["spec"]["clusterQueue"] == queues[1]["metadata"]["name"]


@pytest.mark.skipif("FLEETPS_CRDS" not in os.environ, reason="FLEETPS_CRDS names no definitions")
def test_all_are_valid_as_published() -> None:
    schemas = validation.published(Path(os.environ["FLEETPS_CRDS"]))
    for name in NAMES:
        assert list(validation.complaints_by(built(name), schemas)) == [], name


def _changed(name: str, kind: str, **spec: Any) -> list[Object]:
    objects = [dict(one) for one in built(name)]
    found = next(one for one in objects if one["kind"] == kind)
    found["spec"] = {**found["spec"], **spec}
    return objects


@pytest.mark.parametrize(
    ("name", "kind", "spec", "said"),
    [
        ("jobset", "JobSet", {"succesPolicy": {}}, "succesPolicy"),
        ("jobset", "JobSet", {"failurePolicy": {"rules": [{"action": "Fail"}]}}, "Fail"),
        ("paddlejob/kubeflow", "PaddleJob", {"ps": {}}, "ps"),
        ("paddlejob/paddleflow", "PaddleJob", {"intranet": "Services"}, "Services"),
        ("monitoring", "ServiceMonitor", {"endpoint": []}, "endpoint"),
        ("monitoring", "PrometheusRule", {"groups": [{"rules": []}]}, "name"),
        ("tls", "Certificate", {"duration": "1y"}, "1y"),
        ("verify-image", "Policy", {"failurePolicy": "fail"}, "fail"),
        ("kueue", "LocalQueue", {"queue": "training"}, "queue"),
        ("volcano", "PodGroup", {"minMembers": 5}, "minMembers"),
        ("minimal", "Job", {"paralelism": 2}, "paralelism"),
    ],
)
def test_a_mistake_is_found(name, kind, spec, said) -> None:
    complaints = list(validation.complaints(_changed(name, kind, **spec), VERSIONS[1]))
    assert len(complaints) >= 1
    assert said in " ".join(complaints)


def test_a_mistake_inside_another_kind_is_found() -> None:
    jobs = Manifests(built("jobset")).named("JobSet", "fleetps")["spec"]["replicatedJobs"]
    wrong = {**jobs[1]["template"]["spec"], "completionMod": "Indexed"}
    changed = [jobs[0], {**jobs[1], "template": {"spec": wrong}}, jobs[2]]
    objects = _changed("jobset", "JobSet", replicatedJobs=changed)
    assert "completionMod" in " ".join(validation.complaints(objects, VERSIONS[1]))
