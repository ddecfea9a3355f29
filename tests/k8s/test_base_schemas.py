"""The base by the schemas of Kubernetes."""

from __future__ import annotations

import pytest
from manifests import ROOT, Object, kustomize, load
from validation import VERSIONS, complaints

K8S = ROOT / "k8s"


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    return [*kustomize(K8S / "base"), *load((K8S / "loader.yaml").read_text())]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_valid(objects, version) -> None:
    assert list(complaints(objects, version)) == []
