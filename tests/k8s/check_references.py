"""Names, labels, and that whatever is referred to is there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from manifests import COMPONENT, INSTANCE, NAME, PART_OF, Manifests, Pods, matches, title

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_STANDARD = (NAME, INSTANCE, COMPONENT, PART_OF)
_CLUSTER_WIDE = {
    "PriorityClass",
    "ClusterPolicy",
    "ClusterIssuer",
    "Namespace",
    "ResourceFlavor",
    "ClusterQueue",
}
_OURS = {"Service", "StatefulSet", "Deployment", "Job", "ConfigMap", "PersistentVolumeClaim"}
_LONGEST = 63
# The pods' names end with "-0" and more, and a StatefulSet puts a hash of ten beside its name.
_LONGEST_WORKLOAD = 52


def names(all_: Manifests) -> Iterator[str]:
    for name, count in Counter(title(one) for one in all_.objects).items():
        if count > 1:
            yield f"{name} is there {count} times"
    for one in all_.objects:
        name = one["metadata"].get("name", "")
        longest = _LONGEST_WORKLOAD if one["kind"] in ("StatefulSet", "Job") else _LONGEST
        if not all(_LABEL.fullmatch(part) for part in name.split(".")) or len(name) > longest:
            yield f"{title(one)}: that can't be its name"


def namespaces(all_: Manifests) -> Iterator[str]:
    placed = [one for one in all_.objects if one["kind"] not in _CLUSTER_WIDE]
    most = Counter(one["metadata"].get("namespace") for one in placed).most_common(1)[0][0]
    for one in placed:
        if one["metadata"].get("namespace") != most:
            yield f"{title(one)} is not in the namespace {most} of the others"


def labels(all_: Manifests) -> Iterator[str]:
    places = [(title(one), one["metadata"].get("labels", {})) for one in all_.of(*_OURS)]
    places += [(f"{pods.where}, pods", pods.labels) for pods in all_.pods]
    for where, found in places:
        for label in _STANDARD:
            if not found.get(label):
                yield f"{where}: has no label {label}"
        for label, value in found.items():
            if not isinstance(value, str) or not _VALUE.fullmatch(value):
                yield f"{where}: label {label} can't have the value {value!r}"


def selectors(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        selector = pods.owner["spec"].get("selector")
        if pods.owner["kind"] in ("StatefulSet", "Deployment") and (
            not selector or not selector.get("matchLabels") or not matches(selector, pods.labels)
        ):
            yield f"{pods.where}: its selector doesn't match its own pods"
        for spread in pods.spec.get("topologySpreadConstraints", []):
            if not matches(spread.get("labelSelector", {}), pods.labels):
                yield f"{pods.where}: it spreads other pods than its own"
        yield from _affinity(all_, pods)


def _affinity(all_: Manifests, pods: Pods) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms: dict[str, Any] = pods.spec.get("affinity", {}).get(kind, {})
        wanted = [*terms.get("requiredDuringSchedulingIgnoredDuringExecution", [])]
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        wanted += [one["podAffinityTerm"] for one in preferred]
        for term in wanted:
            if not all_.selected(term.get("labelSelector", {})):
                yield f"{pods.where}: {kind} is about pods that are not there"


def services(all_: Manifests) -> Iterator[str]:
    for one in all_.of("Service"):
        spec = one["spec"]
        selected = all_.selected({"matchLabels": spec.get("selector") or {}})
        if not spec.get("selector") or not selected:
            yield f"{title(one)}: selects no pods"
            continue
        if len({pods.component for pods in selected}) > 1:
            yield f"{title(one)}: selects pods of different kinds"
        for port in spec.get("ports", []):
            target = port.get("targetPort", port["port"])
            for pods in selected:
                if pods.port(target) is None:
                    yield f"{title(one)}: pods of {pods.where} have no port {target}"
        if spec.get("clusterIP") == "None":
            # There no Service stands between: its port is not translated.
            for port in spec["ports"]:
                if any(pods.port(port["port"]) is None for pods in selected):
                    yield f"{title(one)}: headless, but its port {port['port']} isn't the pods'"
        if spec.get("type", "ClusterIP") != "ClusterIP":
            yield f"{title(one)}: opens a port to the world outside"


def stateful_sets(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        if pods.owner["kind"] != "StatefulSet":
            continue
        service = all_.named("Service", pods.owner["spec"].get("serviceName", ""))
        if service is None or not matches(
            {"matchLabels": service["spec"]["selector"]}, pods.labels
        ):
            yield f"{pods.where}: serviceName names no Service of its pods"
        elif pods.component == "server":
            if service["spec"].get("clusterIP") != "None":
                yield f"{title(service)}: servers have names only if it is headless"
            if not service["spec"].get("publishNotReadyAddresses"):
                yield f"{title(service)}: a server couldn't find its own name before it is ready"
            if pods.owner["spec"].get("podManagementPolicy") != "Parallel":
                yield f"{pods.where}: each server waits for all, so start them all"


def disruption(all_: Manifests) -> Iterator[str]:
    for one in all_.of("PodDisruptionBudget"):
        selected = all_.selected(one["spec"].get("selector") or {})
        if not one["spec"].get("selector") or not selected:
            yield f"{title(one)}: selects no pods"
        if "maxUnavailable" in one["spec"] and any(p.owner["kind"] == "Job" for p in selected):
            yield f"{title(one)}: of a Job only minAvailable is understood"
        if one["spec"].get("maxUnavailable") == 0 or one["spec"].get("minAvailable") == "100%":
            yield f"{title(one)}: no node with its pods could ever be drained"
    for pods in all_.pods:
        budgets = all_.of("PodDisruptionBudget")
        if pods.owner["kind"] in ("StatefulSet", "Job") and not any(
            matches(one["spec"].get("selector", {}), pods.labels) for one in budgets
        ):
            yield f"{pods.where}: has no PodDisruptionBudget"


def accounts(all_: Manifests) -> Iterator[str]:
    for one in all_.of("ServiceAccount"):
        if one.get("automountServiceAccountToken") is not False:
            yield f"{title(one)}: its pods get a token for the API"
    for one in all_.of("RoleBinding", "ClusterRoleBinding"):
        yield f"{title(one)}: none of our accounts needs rights"
    for pods in all_.pods:
        account = pods.spec.get("serviceAccountName")
        if (account or pods.main) and not all_.knows("ServiceAccount", account):
            yield f"{pods.where}: its service account isn't there"
        if pods.spec.get("automountServiceAccountToken") is not False:
            yield f"{pods.where}: its pods get a token for the API"
        priority = pods.spec.get("priorityClassName")
        if priority and not all_.knows("PriorityClass", priority):
            yield f"{pods.where}: the PriorityClass {priority} isn't there"


def volumes(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        own = [one["name"] for one in pods.spec.get("volumes", [])]
        known = {*own, *pods.claims}
        mounted = {m["name"] for one in pods.containers for m in one.get("volumeMounts", [])}
        for name in sorted(mounted - known):
            yield f"{pods.where}: mounts {name}, which is no volume of it"
        for name in sorted(known - mounted):
            yield f"{pods.where}: nobody mounts its volume {name}"
        for name, count in Counter([*own, *pods.claims]).items():
            if count > 1:
                yield f"{pods.where}: has {count} volumes named {name}"
        for one in pods.containers:
            paths = Counter(m["mountPath"].rstrip("/") for m in one.get("volumeMounts", []))
            if any(count > 1 for count in paths.values()):
                yield f"{pods.where}: {one['name']} has two volumes at one place"
        for volume in pods.spec.get("volumes", []):
            yield from _source(all_, pods, volume)


def _source(all_: Manifests, pods: Pods, volume: dict[str, Any]) -> Iterator[str]:
    for field, key, kind in (
        ("configMap", "name", "ConfigMap"),
        ("secret", "secretName", "Secret"),
        ("persistentVolumeClaim", "claimName", "PersistentVolumeClaim"),
    ):
        if field not in volume:
            continue
        name = volume[field].get(key)
        token = kind == "Secret" and name == f"{pods.labels.get(INSTANCE)}-token"
        if not token and not all_.knows(kind, name):
            yield f"{pods.where}: volume {volume['name']} is of {kind} {name}, which isn't there"
        found = all_.named(kind, name or "")
        data = {**found.get("data", {}), **found.get("stringData", {})} if found else {}
        for item in volume[field].get("items", []):
            if data and item["key"] not in data:
                yield f"{pods.where}: {kind} {name} has no {item['key']}"
