"""Kubernetes' objects on a Docker engine: what controllers and kube-proxy do, as far as k8s/base
needs it. No scheduler, no API server, no NetworkPolicies: a pod-template run, not a cluster.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
from docker.models.containers import Container
from docker.models.networks import Network
from docker.types import IPAMConfig, IPAMPool
from engine import Engine
from pods import Node, Pod

import docker

Object = dict[str, Any]
_PROXY = Path(__file__).with_name("service_proxy.py")


class StatefulSet:
    """Pods with names that stay."""

    def __init__(self, cluster: Cluster, spec: Object, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self.spec = spec
        self.wanted: int = spec["replicas"]
        self.pods: list[Pod] = []

    def reconcile(self) -> None:
        self.pods = [pod for pod in self.pods if not pod.ended]
        there = {pod.name: pod for pod in self.pods}
        for index in range(self.wanted):
            pod = there.pop(f"{self._name}-{index}", None)
            if pod is None:
                pod = self._made(index)
                self.pods.append(pod)
            if self.spec.get("podManagementPolicy") != "Parallel" and not pod.ready:
                return
        for pod in there.values():
            pod.delete()

    def _made(self, index: int) -> Pod:
        name = f"{self._name}-{index}"
        template = json.loads(json.dumps(self.spec["template"]))
        for claim in self.spec.get("volumeClaimTemplates", []):
            volume = claim["metadata"]["name"]
            own = f"{volume}-{name}"
            self._cluster.objects["PersistentVolumeClaim", own] = {"metadata": {"name": own}}
            template["spec"]["volumes"].append(
                {"name": volume, "persistentVolumeClaim": {"claimName": own}}
            )
        labels = {"apps.kubernetes.io/pod-index": str(index)}
        return self._cluster.pod(name, template, labels, self.spec["serviceName"])


class Job:
    """Pods that end. Without completions: the first that succeeds is the beginning of the end."""

    def __init__(self, cluster: Cluster, spec: Object, name: str) -> None:
        assert "completions" not in spec, "only work queues are played here"
        self._cluster = cluster
        self._name = name
        self.spec = spec
        self.wanted: int = spec["parallelism"]
        self.pods: list[Pod] = []  # those that have not ended
        self.succeeded = self.failed = self.ignored = 0
        self.verdict = ""  # in the end: Complete, BackoffLimitExceeded or PodFailurePolicy

    def reconcile(self) -> None:
        for pod in self.pods:
            if pod.ended:
                self._count(pod.codes[-1])
        self.pods = [pod for pod in self.pods if not pod.ended]
        if self.succeeded and not self.pods:
            self.verdict = self.verdict or "Complete"
        wanted = 0 if self.verdict else self.wanted
        if not self.succeeded:
            while len(self.pods) < wanted:
                self.pods.append(self._made())
        for pod in self.pods[wanted:]:  # the youngest
            pod.delete()

    def _made(self) -> Pod:
        name = f"{self._name}-{secrets.token_hex(3)}"
        return self._cluster.pod(name, self.spec["template"], {}, None)

    def _count(self, code: int) -> None:
        action = "Succeed" if code == 0 else action_on(code, self.spec["podFailurePolicy"]["rules"])
        if action == "FailJob":
            self.verdict = "PodFailurePolicy"
        self.succeeded += action == "Succeed"
        self.ignored += action == "Ignore"
        self.failed += action in ("Count", "FailJob")
        if self.failed > self.spec["backoffLimit"]:
            self.verdict = self.verdict or "BackoffLimitExceeded"


def action_on(code: int, rules: Iterable[Object]) -> str:
    """Of podFailurePolicy's rules, the first that fits; nothing is evicted or preempted here."""
    for rule in rules:
        codes = rule.get("onExitCodes")
        if codes and (code in codes["values"]) == (codes["operator"] == "In"):
            return str(rule["action"])
    return "Count"


class Service:
    """One with an address of its own, behind which is a pod that is ready, or nobody."""

    def __init__(self, cluster: Cluster, node: Node, one: Object, image: str) -> None:
        self._cluster = cluster
        self._spec = one["spec"]
        (self._port,) = self._spec["ports"]
        name = one["metadata"]["name"]
        address = next(node.addresses)
        self.url = f"http://{address}:{self._port['port']}"
        self._file = node.directory / "services" / name / "target"
        self._file.parent.mkdir(parents=True)
        self._file.write_text("")
        node.create(
            f"service-{name}", address, [name], image=image,
            command=["python", "/proxy.py", str(self._port["port"]), "/service/target"],
            volumes={
                str(_PROXY): {"bind": "/proxy.py", "mode": "ro"},
                str(self._file.parent): {"bind": "/service", "mode": "ro"},
            },
        ).start()  # fmt: skip

    def reconcile(self) -> None:
        ready = [pod for pod in self._cluster.selected(self._spec) if pod.ready]
        target = f"{ready[0].address}:{ready[0].ports[self._port['targetPort']]}" if ready else ""
        if target != self._file.read_text():
            new = self._file.with_name("new")
            new.write_text(target)
            new.replace(self._file)


class Cluster:
    """Everything is done while somebody waits (`until`); nothing is left after `remove`."""

    def __init__(self, engine: Engine, directory: Path, image: str) -> None:
        name = f"pods-{secrets.token_hex(3)}"
        self._image = image
        self._network, addresses = _network(engine.client, name)
        self.objects: dict[tuple[str, str], Object] = {}
        self._node = Node(engine.client, name, addresses, directory, self.objects)
        self.running: dict[str, StatefulSet | Job | Service] = {}

    def apply(self, objects: Iterable[Object]) -> None:
        kinds = {"StatefulSet": StatefulSet, "Job": Job}
        for one in objects:
            kind, name = one["kind"], one["metadata"]["name"]
            self.objects[kind, name] = one
            title = f"{kind}/{name}"
            if kind == "Service" and one["spec"].get("clusterIP") != "None":
                if title not in self.running:
                    self.running[title] = Service(self, self._node, one, self._image)
            elif kind in kinds:
                assert not getattr(self.running.get(title), "pods", []), f"{title} has pods"
                self.running[title] = kinds[kind](self, one["spec"], name)

    def pod(self, name: str, template: Object, labels: dict[str, str], service: str | None) -> Pod:
        """Its name, if it is of a headless Service that selects it: from the beginning."""
        aliases = []
        if one := self.objects.get(("Service", service or "")):
            spec = one["spec"]
            if spec.get("clusterIP") == "None" and _selects(spec, template["metadata"]["labels"]):
                assert spec["publishNotReadyAddresses"], "names that come later aren't played here"
                aliases = [f"{name}.{service}", str(service)]
        return Pod(self._node, name, template, labels, aliases)

    def selected(self, spec: Object) -> list[Pod]:
        return [pod for pod in self.pods() if _selects(spec, pod.labels)]

    def pods(self, title: str = "") -> list[Pod]:
        """Those that have not ended, of one object or all."""
        titles = [title] if title else self.running
        return [pod for one in titles for pod in getattr(self.running[one], "pods", [])]

    def until(self, true: Callable[[], Any], what: str, seconds: float = 300) -> Any:
        """What `true` gives in the end."""
        deadline = time.monotonic() + seconds
        while not (found := true()):
            assert time.monotonic() < deadline, f"not {what} after {seconds} s\n{self.story()}"
            for pod in self.pods():
                if pod.ended:
                    pod.life.result()  # raises what went wrong with it
            for one in self.running.values():
                one.reconcile()
            time.sleep(0.2)
        return found

    def status(self, token: str) -> Object | None:
        """What the coordinator says behind its Service."""
        (service,) = (one for one in self.running.values() if isinstance(one, Service))
        try:
            answer = httpx.get(
                f"{service.url}/status",
                headers={"Authorization": f"Bearer {token}"},
                timeout=5,
                trust_env=False,
            )
            return dict(answer.json()) if answer.is_success else None
        except httpx.HTTPError:
            return None

    def containers(self) -> list[Container]:
        """All that are left of it, whatever their state."""
        prefix = f"{self._network.name}-"
        return list(self._node.client.containers.list(all=True, filters={"name": prefix}))

    def story(self) -> str:
        return "\n".join([*self._node.stories, *(pod.story() for pod in self.pods())])

    def remove(self) -> None:
        for pod in self.pods():
            pod.delete(0)
        self._node.threads.shutdown()
        for one in self.containers():
            one.remove(force=True)
        self._network.remove()


def _selects(spec: Object, labels: dict[str, str]) -> bool:
    return spec["selector"].items() <= labels.items()


def _network(client: docker.DockerClient, name: str) -> tuple[Network, Iterator[str]]:
    """One that leads nowhere, and its addresses: the engine chooses a free range, we in it."""
    chosen = client.networks.create(name, internal=True)
    chosen.reload()
    subnet = chosen.attrs["IPAM"]["Config"][0]["Subnet"]
    chosen.remove()
    network = client.networks.create(
        name, internal=True, ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)])
    )
    hosts = map(str, ipaddress.ip_network(subnet).hosts())
    next(hosts)  # the bridge's own
    return network, hosts
