"""What k8s/README.md tells people to type is about objects that there are."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from findings import findings
from manifests import COMPONENT, ROOT, Manifests, kustomize, load, title

K8S = ROOT / "k8s"
README = (K8S / "README.md").read_text(encoding="utf-8")
_KINDS = {
    "statefulset": "StatefulSet",
    "job": "Job",
    "service": "Service",
    "pod": "Pod",
    "secret": "Secret",
    "networkpolicy": "NetworkPolicy",
}
_NAMED = re.compile(rf"\b({'|'.join(_KINDS)})[ /](fleetps-[a-z0-9-]+)", re.IGNORECASE)
_MADE_BY_HAND = "Secret/fleetps-token"


@pytest.fixture(scope="module")
def base() -> Manifests:
    return Manifests([*kustomize(K8S / "base"), *load((K8S / "loader.yaml").read_text())])


def test_every_object_that_is_named_is_there(base) -> None:
    known = {title(one) for one in base.objects} | {_MADE_BY_HAND}
    for one in base.of("StatefulSet"):
        replicas = one["spec"]["replicas"]
        known |= {f"Pod/{one['metadata']['name']}-{index}" for index in range(replicas)}
    named = {f"{_KINDS[kind.lower()]}/{name}" for kind, name in _NAMED.findall(README)}
    assert len(named) > 5
    assert named <= known


def test_the_variables_and_fields_that_it_changes_are_there(base) -> None:
    for name, variable in re.findall(r"set env statefulset/([a-z-]+) ([A-Z_]+)=", README):
        (pods,) = (one for one in base.pods if one.owner["metadata"]["name"] == name)
        assert variable in {one["name"] for one in pods.main["env"]}
    for label in re.findall(rf"-l {COMPONENT}=([a-z]+)", README):
        assert any(one["metadata"]["labels"].get(COMPONENT) == label for one in base.objects)


def test_the_overlay_that_it_shows_is_whole(tmp_path) -> None:
    (text,) = re.findall(r"```yaml\n# clicks/kustomization.yaml\n(.*?)```", README, re.DOTALL)
    text = text.replace("../k8s/base", os.path.relpath(K8S / "base", tmp_path))
    text = text.replace("sha256:...", "sha256:" + "0" * 64)
    (tmp_path / "kustomization.yaml").write_text(text)
    shutil.copy(ROOT / "conf" / "criteo_sample.yaml", tmp_path / "job.yaml")
    objects = kustomize(tmp_path)
    assert findings(objects) == []
    servers = next(one for one in objects if title(one) == "StatefulSet/fleetps-server")
    assert servers["spec"]["replicas"] == 4
