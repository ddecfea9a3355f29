"""The overlays of k8s/, built."""

from __future__ import annotations

from functools import cache

import yaml
from manifests import ROOT, Object, kustomize

OVERLAYS = ROOT / "k8s" / "overlays"
COMPONENTS = ROOT / "k8s" / "components"

# What who runs the cluster has to make before.
EXTERNAL = {
    "production": [
        "PriorityClass/fleetps-state",
        "PriorityClass/fleetps-workers",
        "Secret/fleetps-s3",
    ]
}
# What only looks wrong, and why.
EXPECTED = {
    # s3fs reads these.
    "production": [
        "StatefulSet/fleetps-coordinator: sets AWS_SHARED_CREDENTIALS_FILE, which nobody reads",
        "StatefulSet/fleetps-coordinator: sets AWS_CONFIG_FILE, which nobody reads",
    ],
    # Whom they talk with is their proxy; test_overlay_purposes.py looks where that leads.
    "tls": [
        "StatefulSet/fleetps-coordinator: COORDINATOR names no Service: 127.0.0.1",
        "StatefulSet/fleetps-server: COORDINATOR names no Service: 127.0.0.1",
        "StatefulSet/fleetps-server: it would listen at 6174, which is no port of its container",
        "StatefulSet/fleetps-server: SERVER_ENDPOINT doesn't begin with the pod's name: 127.0.1.0",
        (
            "StatefulSet/fleetps-server: SERVER_ENDPOINT isn't a name that its Service gives: "
            "127.0.1.0"
        ),
        "Job/fleetps-worker: COORDINATOR names no Service: 127.0.0.1",
    ],
    # The operator sets PADDLE_PORT: test_operators.py.
    "paddlejob/paddleflow": [
        "PaddleJob/fleetps: it would listen at 6174, which is no port of its container"
    ],
}


def names() -> list[str]:
    """Paths below k8s/overlays of what can be applied."""
    files = OVERLAYS.rglob("kustomization.yaml")
    kinds = {file.parent: yaml.safe_load(file.read_text())["kind"] for file in files}
    return sorted(str(p.relative_to(OVERLAYS)) for p, kind in kinds.items() if kind != "Component")


@cache
def built(name: str) -> list[Object]:
    return kustomize(OVERLAYS / name)
