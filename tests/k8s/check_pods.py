"""What each pod may, has and is asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from manifests import Manifests, Pods, title

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_SCALES = {
    None: Decimal(1), "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTP", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTP", start=1)},
}  # fmt: skip
_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
# The job's last checkpoint, its end, and a little more: docs/operations.md.
_GRACE = {"coordinator": 35, "server": 15, "worker": 10}
_LEAST_MEMORY = {"server": 256 * 1024**2, "worker": 256 * 1024**2, "coordinator": 128 * 1024**2}


def quantity(text: Any) -> Decimal | None:
    found = _QUANTITY.fullmatch(str(text))
    return Decimal(found.group(1)) * _SCALES[found.group(2)] if found else None


def resources(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        for one in pods.containers:
            yield from _resources(f"{pods.where}, {one['name']}", one.get("resources", {}))
            memory = quantity(one.get("resources", {}).get("requests", {}).get("memory"))
            least = _LEAST_MEMORY.get(pods.component, 0) if one is pods.main else 0
            if memory is not None and memory < least:
                yield f"{pods.where}: Paddle doesn't even start in {memory} bytes"
    for one in all_.of("PersistentVolumeClaim"):
        yield from _storage(title(one), one["spec"])
    for pods in all_.pods:
        for one in pods.owner["spec"].get("volumeClaimTemplates", []):
            yield from _storage(f"{pods.where}, {one['metadata']['name']}", one["spec"])


def _resources(where: str, found: dict[str, dict[str, Any]]) -> Iterator[str]:
    for part in ("requests", "limits"):
        for name in ("cpu", "memory"):
            if name not in found.get(part, {}):
                yield f"{where}: no {part} of {name}"
        for name, text in found.get(part, {}).items():
            if quantity(text) is None:
                yield f"{where}: {part} of {name}: {text!r} is no quantity"
    for name, text in found.get("requests", {}).items():
        request, limit = quantity(text), quantity(found.get("limits", {}).get(name, text))
        if request is not None and limit is not None and request > limit:
            yield f"{where}: requests more {name} than its limit"


def _storage(where: str, spec: dict[str, Any]) -> Iterator[str]:
    size = spec.get("resources", {}).get("requests", {}).get("storage")
    if quantity(size) is None:
        yield f"{where}: storage of {size!r} is no quantity"
    if not spec.get("accessModes"):
        yield f"{where}: no access modes"


def ports(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        found = [p for one in pods.spec["containers"] for p in one.get("ports", [])]
        for name, count in Counter(port.get("name") for port in found).items():
            if count > 1 or not name or not _PORT_NAME.fullmatch(name):
                yield f"{pods.where}: a port needs a name of its own of at most 15 letters: {name}"


def probes(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        one = pods.main
        if one is None:
            continue
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = one.get(kind)
            if not probe:
                yield f"{pods.where}: no {kind}"
                continue
            for port in _probed(probe):
                if pods.port(port) is None:
                    yield f"{pods.where}: {kind} asks a port {port} that isn't there"
        # Its child, the Paddle process, is away while others are waited for.
        if "exec" not in one.get("livenessProbe", {"exec": 1}):
            yield f"{pods.where}: only the agent itself says whether it is alive"
        named = " ".join(one.get("livenessProbe", {}).get("exec", {}).get("command", []))
        file = next(
            (v["value"] for v in one.get("env", []) if v["name"] == "FLEETPS_PULSE_FILE"), ""
        )
        if file not in named or not file:
            yield f"{pods.where}: its livenessProbe doesn't look at FLEETPS_PULSE_FILE"


def _probed(probe: dict[str, Any]) -> Iterator[Any]:
    for kind in ("httpGet", "tcpSocket", "grpc"):
        if kind in probe:
            yield probe[kind]["port"]


def images(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        for one in pods.containers:
            image = str(one.get("image", ""))
            tag = image.rpartition("/")[2].partition(":")[2]
            if "@sha256:" not in image and tag in ("", "latest"):
                yield f"{pods.where}, {one['name']}: {image} is another image tomorrow"


def security(all_: Manifests) -> Iterator[str]:
    """Pod Security `restricted`, and a read-only root."""
    for pods in all_.pods:
        spec, whole = pods.spec, pods.spec.get("securityContext", {})
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field):
                yield f"{pods.where}: {field}"
        for volume in spec.get("volumes", []):
            if not set(volume) - {"name"} <= _VOLUMES:
                yield f"{pods.where}: volume {volume['name']} is of a kind that isn't allowed"
        claims = any("persistentVolumeClaim" in volume for volume in spec.get("volumes", []))
        if (claims or pods.claims) and not whole.get("fsGroup"):
            yield f"{pods.where}: without fsGroup it can't write into its volumes"
        if spec.get("enableServiceLinks") is not False:
            yield f"{pods.where}: each Service of the namespace sets variables in it"
        for one in pods.containers:
            for complaint in _privileges(one, {**whole, **one.get("securityContext", {})}):
                yield f"{pods.where}, {one['name']}: {complaint}"


def _privileges(container: dict[str, Any], context: dict[str, Any]) -> Iterator[str]:
    """`context`: the container's own fields over those of its pod."""
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield "may get more privileges"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []) or capabilities.get("add"):
        yield "keeps capabilities"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "may write in its root file system"
    if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
        yield "may be root"
    if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "has no seccomp profile"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield "opens a port of the node"


def secrets(all_: Manifests) -> Iterator[str]:
    for one in all_.of("Secret"):
        if one.get("data") or one.get("stringData"):
            yield f"{title(one)}: a secret in a manifest is none"


def grace(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        least = _GRACE.get(pods.component, 0)
        given = pods.spec.get("terminationGracePeriodSeconds", 30)
        if pods.main is not None and given < least:
            yield f"{pods.where}: {given} s are too few to end in; it takes up to {least}"


def jobs(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        if pods.owner["kind"] == "Job":
            yield from _job(pods)


def _job(pods: Pods) -> Iterator[str]:
    spec = pods.owner["spec"]
    if pods.spec.get("restartPolicy") != "Never":
        yield f"{pods.where}: podFailurePolicy needs restartPolicy: Never"
    if spec.get("completions") is not None:
        yield f"{pods.where}: with completions it can't be scaled by parallelism alone"
    rules = spec.get("podFailurePolicy", {}).get("rules", [])
    names = {one["name"] for one in pods.spec["containers"]}
    for rule in rules:
        named = rule.get("onExitCodes", {}).get("containerName")
        if named is not None and named not in names:
            yield f"{pods.where}: podFailurePolicy names a container {named} that isn't there"
    if _first(rules, code=2) != "FailJob":
        yield f"{pods.where}: a mistake (exit code 2) doesn't fail the Job"
    if _first(rules, code=143) != "Ignore":
        yield f"{pods.where}: a worker that was asked to stop (143) counts as a failure"
    if _first(rules, code=137, condition="DisruptionTarget") != "Ignore":
        yield f"{pods.where}: a disruption counts as a failure"
    if _first(rules, code=75) not in (None, "Count"):
        yield f"{pods.where}: a failure (75) doesn't count"


def _first(rules: list[dict[str, Any]], *, code: int, condition: str = "") -> str | None:
    """What the first rule that fits does."""
    for rule in rules:
        codes = rule.get("onExitCodes")
        if codes and (code in codes["values"]) == (codes["operator"] == "In"):
            return str(rule["action"])
        if any(c["type"] == condition for c in rule.get("onPodConditions", [])):
            return str(rule["action"])
    return None
