"""Kubernetes objects as they refer to one another, for the checks beside this file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
NAME, INSTANCE, COMPONENT, PART_OF = (
    f"app.kubernetes.io/{label}" for label in ("name", "instance", "component", "part-of")
)
_EXPANSION = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def kustomize(directory: Path) -> list[Object]:
    """What `kubectl apply -k` would send."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kubectl = shutil.which("kubectl", path=places)
    assert kubectl, "no kubectl: make setup installs one"
    done = subprocess.run(
        [kubectl, "kustomize", str(directory)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr  # it warns about fields that are deprecated
    return load(done.stdout)


def load(text: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(text) if one is not None]


def title(one: Object) -> str:
    return f"{one.get('kind')}/{one.get('metadata', {}).get('name')}"


@dataclass(frozen=True)
class Pods:
    """A pod template and the object that makes pods of it."""

    owner: Object
    template: Object

    @property
    def where(self) -> str:
        return title(self.owner)

    @property
    def labels(self) -> dict[str, str]:
        return self.template.get("metadata", {}).get("labels", {})

    @property
    def component(self) -> str:
        return self.labels.get(COMPONENT, "")

    @property
    def spec(self) -> dict[str, Any]:
        return self.template["spec"]

    @property
    def containers(self) -> list[dict[str, Any]]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def main(self) -> dict[str, Any] | None:
        """The container that runs train.py."""
        own = (one for one in self.spec["containers"] if "train.py" in one.get("args", []))
        return next(own, None)

    @property
    def ports(self) -> dict[str, int]:
        """By name, and by number as a text where there is none."""
        running = [one for one in self.containers if one not in self._starters]
        ports = [port for one in running for port in one.get("ports", [])]
        return {
            str(port.get("name", port["containerPort"])): port["containerPort"] for port in ports
        }

    @property
    def _starters(self) -> list[dict[str, Any]]:
        """Init containers that end before the others begin; side-cars don't."""
        return [
            c for c in self.spec.get("initContainers", []) if c.get("restartPolicy") != "Always"
        ]

    @property
    def claims(self) -> list[str]:
        """Volumes that each pod of a StatefulSet has of its own."""
        templates = self.owner["spec"].get("volumeClaimTemplates", [])
        return [one["metadata"]["name"] for one in templates]

    def port(self, named: str | int) -> int | None:
        """The number of a port of these pods."""
        if isinstance(named, str):
            return self.ports.get(named)
        return named if named in self.ports.values() else None


@dataclass
class Manifests:
    objects: list[Object]
    # What others make: "Secret/fleetps-token", "PriorityClass/high".
    external: Collection[str] = ()
    _titles: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._titles = {title(one) for one in self.objects} | set(self.external)
        for one in self.of("Certificate"):
            self._titles.add(f"Secret/{one['spec']['secretName']}")

    def of(self, *kinds: str) -> Iterator[Object]:
        return (one for one in self.objects if one.get("kind") in kinds)

    def named(self, kind: str, name: str) -> Object | None:
        return next((one for one in self.of(kind) if one["metadata"].get("name") == name), None)

    def knows(self, kind: str, name: str | None) -> bool:
        return f"{kind}/{name}" in self._titles

    @cached_property
    def pods(self) -> list[Pods]:
        return [Pods(one, node) for one in self.objects for node in _templates(one)]

    def selected(self, selector: Mapping[str, Any]) -> list[Pods]:
        return [pods for pods in self.pods if matches(selector, pods.labels)]


def _templates(node: Any) -> Iterator[Object]:
    """Pod templates, wherever they are: in a Job, a JobSet, a resource of Kubeflow."""
    if isinstance(node, dict):
        spec = node.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield node
            return
        node = list(node.values())
    if isinstance(node, list):
        for one in node:
            yield from _templates(one)


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """A LabelSelector; an empty one matches everything."""
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_meets(one, labels) for one in selector.get("matchExpressions") or [])


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values", [])
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]


def environment(pods: Pods, container: Mapping[str, Any]) -> dict[str, str]:
    """As kubelet would set it for the first pod; raises KeyError for what is defined later."""
    found: dict[str, str] = {}
    for variable in container.get("env", []):
        source = variable.get("valueFrom")
        text = _of_source(pods, source) if source else str(variable.get("value", ""))
        found[variable["name"]] = expand(text, found)
    return found


def _of_source(pods: Pods, source: Mapping[str, Any]) -> str:
    path = source.get("fieldRef", {}).get("fieldPath", "")
    return {
        "metadata.name": f"{pods.owner['metadata']['name']}-0",
        "metadata.namespace": pods.owner["metadata"].get("namespace", "default"),
        "status.podIP": "10.0.0.1",
        "metadata.labels['apps.kubernetes.io/pod-index']": "0",
        "metadata.annotations['batch.kubernetes.io/job-completion-index']": "0",
    }.get(path, "text")


def expand(text: str, known: Mapping[str, str]) -> str:
    """$(VARIABLE), as Kubernetes does it in commands and values; KeyError: there is none."""
    return _EXPANSION.sub(lambda match: known[match.group(1)], text)
