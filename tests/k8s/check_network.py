"""Who reaches whom: the NetworkPolicies as a plug-in would read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from manifests import Manifests, Object, Pods, matches, title

_WATCHES = {"fleetps/watch": "true"}
_NEEDED = (("worker", "server"), ("worker", "coordinator"), ("server", "coordinator"),
           ("coordinator", "coordinator"), ("worker", "worker"), ("server", "server"))  # fmt: skip
_DNS = 53
_HTTPS = 443


@dataclass(frozen=True)
class Peer:
    """Somebody at one end of a connection; `address`: of somebody outside the cluster."""

    name: str
    labels: Mapping[str, str]
    namespace: Mapping[str, str] | None = None  # its labels; None: the job's own
    address: bool = False
    pods: Pods | None = None


_STRANGER = Peer("a pod of something else", {"app": "stranger"})
_ELSEWHERE = Peer("a pod of another namespace", {"app": "stranger"}, {"name": "other"})
_WATCHER = Peer("a pod that may watch", {"app": "prometheus"}, _WATCHES)
_OUTSIDE = Peer("an address outside", {}, None, address=True)
_RESOLVER = Peer(
    "the cluster's DNS", {"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "kube-system"}
)


def policies(all_: Manifests) -> Iterator[str]:
    for one in all_.of("NetworkPolicy"):
        spec = one["spec"]
        selected = all_.selected(spec.get("podSelector", {}))
        if not selected:
            yield f"{title(one)}: selects no pods"
        for kind, field in (("ingress", "from"), ("egress", "to")):
            if spec.get(kind) and kind.capitalize() not in spec.get("policyTypes", []):
                yield f"{title(one)}: has rules for {kind}, but no such type"
            for rule in spec.get(kind, []):
                peers = [peer for peer in rule.get(field, []) if set(peer) == {"podSelector"}]
                for peer in peers:
                    if not all_.selected(peer["podSelector"]):
                        yield f"{title(one)}: {kind} names pods that are not there"
                targets = selected if kind == "ingress" else [
                    pods for peer in peers for pods in all_.selected(peer["podSelector"])
                ]  # fmt: skip
                yield from _ports(one, rule, targets)


def _ports(one: Object, rule: Mapping[str, Any], targets: list[Pods]) -> Iterator[str]:
    for port in rule.get("ports", []):
        number = port.get("port")
        if targets and number is not None and all(pods.port(number) is None for pods in targets):
            yield f"{title(one)}: port {number} is no port of the pods it is about"


def flows(all_: Manifests) -> Iterator[str]:
    """What has to work works, and nothing else."""
    ours = [pods for pods in all_.pods if pods.main is not None]
    peers = {pods.component: Peer(pods.component, pods.labels, pods=pods) for pods in ours}
    for source, target in _NEEDED:
        if source in peers and target in peers:
            pods = peers[target].pods
            for port in (pods.ports.values() if pods else ()) or (40_000,):
                if not _reaches(all_, peers[source], peers[target], port):
                    yield f"NetworkPolicy: {source} doesn't reach {target} at port {port}"
    for name, peer in peers.items():
        if not _may(all_, peer, "Egress", "to", _RESOLVER, _DNS):
            yield f"NetworkPolicy: {name} finds no names"
        if name != "coordinator" and _may(all_, peer, "Egress", "to", _OUTSIDE, _HTTPS):
            yield f"NetworkPolicy: {name} reaches the world"
        for port in peer.pods.ports.values() if peer.pods else ():
            for other in (_STRANGER, _ELSEWHERE, _OUTSIDE, _WATCHER):
                wanted = other is _WATCHER and name == "coordinator"
                if _may(all_, peer, "Ingress", "from", other, port) != wanted:
                    yield f"NetworkPolicy: {other.name} reaches {name}: {not wanted}"


def _reaches(all_: Manifests, source: Peer, target: Peer, port: int) -> bool:
    out = _may(all_, source, "Egress", "to", target, port)
    return out and _may(all_, target, "Ingress", "from", source, port)


def _may(all_: Manifests, own: Peer, kind: str, field: str, other: Peer, port: int) -> bool:
    """Whether the policies about `own` let it talk with `other`; without any they all do."""
    about = [
        one["spec"]
        for one in all_.of("NetworkPolicy")
        if matches(one["spec"].get("podSelector", {}), own.labels)
        and kind in one["spec"].get("policyTypes", ["Ingress"])
    ]
    target = other if kind == "Egress" else own
    rules = [rule for spec in about for rule in spec.get(kind.lower()) or []]
    return not about or any(
        _is_peer(rule.get(field), other) and _is_port(rule.get("ports"), target, port)
        for rule in rules
    )


def _is_peer(allowed: list[Mapping[str, Any]] | None, other: Peer) -> bool:
    if not allowed:
        return True
    return any(_fits(one, other) for one in allowed)


def _fits(one: Mapping[str, Any], other: Peer) -> bool:
    if "ipBlock" in one:
        return other.address and one["ipBlock"]["cidr"] in ("0.0.0.0/0", "::/0")
    if other.address:
        return False
    if "namespaceSelector" not in one and other.namespace is not None:
        return False
    if "namespaceSelector" in one and not matches(one["namespaceSelector"], other.namespace or {}):
        return False
    return matches(one.get("podSelector", {}), other.labels)


def _is_port(allowed: list[Mapping[str, Any]] | None, target: Peer, port: int) -> bool:
    if not allowed:
        return True
    for one in allowed:
        number = one.get("port")
        if isinstance(number, str) and target.pods is not None:
            number = target.pods.ports.get(number)
        last = one.get("endPort", number)
        if number is None or (isinstance(number, int) and number <= port <= last):
            return True
    return False
