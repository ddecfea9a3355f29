"""Pods of templates as containers of a Docker engine: what kubelet does for them.

A pod is one container here. A field of a template that isn't known is refused, so that nothing of
it is left out unseen; `_LEFT_OUT` has no meaning without a cluster, or is so on any engine.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from docker.errors import APIError
from docker.models.containers import Container
from volumes import Objects, directory_of, give_to

import docker

_LEFT_OUT = {
    "fsGroupChangePolicy", "imagePullPolicy", "seccompProfile", "serviceAccountName",
    "topologySpreadConstraints",
}  # fmt: skip
# Liveness is asked for so many times as often as the template says: nobody wants to wait minutes.
_QUICKER = 10
_LOOK_SECONDS = 0.2
_BACK_OFF = 10.0  # before the second restart; doubled with each
_UNITS = {"m": 1e-3, "": 1.0, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


def fields(where: str, node: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """The known ones; an AssertionError names others."""
    others = set(node) - set(known) - _LEFT_OUT
    assert not others, f"{where}: {sorted(others)} can't be played here"
    return {key: node[key] for key in node if key in known}


def quantity(text: str) -> float:
    digits = str(text).rstrip("mKMGi")
    return float(digits) * _UNITS[str(text)[len(digits) :]]


@dataclass
class Node:
    """What all pods share."""

    client: docker.DockerClient
    network: str
    addresses: Iterator[str]  # each is given once
    directory: Path
    objects: Objects
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32))
    stories: list[str] = field(default_factory=list)  # of containers that are gone

    def create(self, name: str, address: str, aliases: list[str], **options: Any) -> Container:
        """Names are the network's, so that one pod finds another only by what Services give it."""
        return self.client.containers.create(
            name=f"{self.network}-{name}",
            network=self.network,
            networking_config={
                self.network: self.client.api.create_endpoint_config(
                    aliases=aliases, ipv4_address=address
                )
            },
            **options,
        )


class Probe:
    """One question, asked as kubelet does."""

    def __init__(self, spec: Mapping[str, Any], quicker: int = 1) -> None:
        self.spec = fields(
            "a probe", spec, "exec", "httpGet", "periodSeconds", "timeoutSeconds",
            "failureThreshold", "terminationGracePeriodSeconds",
        )  # fmt: skip
        self._period = spec.get("periodSeconds", 10) / quicker
        self._due = 0.0
        self._failures = 0

    def ask(self, pod: Pod) -> bool | None:
        """False: it has failed as often as it may; None: there is nothing new."""
        if time.monotonic() < self._due:
            return None
        well = self._asked(pod)
        self._due = time.monotonic() + self._period
        self._failures = 0 if well else self._failures + 1
        return well or (False if self._failures >= self.spec.get("failureThreshold", 3) else None)

    def _asked(self, pod: Pod) -> bool:
        seconds = self.spec.get("timeoutSeconds", 1)
        if "exec" in self.spec:
            command = ["timeout", str(seconds), *self.spec["exec"]["command"]]
            with suppress(APIError):  # it has just ended
                return pod.run(*command) == 0
            return False
        get = fields("httpGet", self.spec["httpGet"], "path", "port")
        url = f"http://{pod.address}:{pod.ports[get['port']]}{get['path']}"
        try:
            return httpx.get(url, timeout=seconds, trust_env=False).is_success
        except httpx.HTTPError:
            return False


class Pod:
    """It lives in a thread of its own until it has ended, or is deleted."""

    def __init__(
        self,
        node: Node,
        name: str,
        template: Mapping[str, Any],
        labels: Mapping[str, str],
        aliases: list[str],
    ) -> None:
        self.name = name
        self.labels = {**template["metadata"]["labels"], **labels}
        self.address = next(node.addresses)
        self.ready = False
        self.codes: list[int] = []  # how its container ended, each time
        self._node = node
        self._spec = fields(
            name, template["spec"], "automountServiceAccountToken", "containers",
            "enableServiceLinks", "restartPolicy", "securityContext",
            "terminationGracePeriodSeconds", "volumes",
        )  # fmt: skip
        # Else kubelet would add files and variables.
        assert self._spec["automountServiceAccountToken"] is False
        assert self._spec["enableServiceLinks"] is False
        (self.main,) = self._spec["containers"]
        self.ports = {one["name"]: one["containerPort"] for one in self.main.get("ports", [])}
        self._grace: int = self._spec["terminationGracePeriodSeconds"]
        self._own = node.directory / "pods" / f"{name}-{self.address}"  # its emptyDirs
        self._deleted = threading.Event()
        self.container = node.create(name, self.address, aliases, **self._options())
        self.life: Future[None] = node.threads.submit(self._live)

    def delete(self, grace: int | None = None) -> None:
        """As `kubectl delete pod`; with grace 0 it is killed."""
        if not self._deleted.is_set():
            self._grace = self._grace if grace is None else grace
            self._deleted.set()

    @property
    def ended(self) -> bool:
        return self.life.done()

    def run(self, *command: str) -> int:
        """The exit code of a command in it; what it prints, an engine under load may lose."""
        return int(self.container.exec_run(list(command)).exit_code)

    @property
    def process(self) -> psutil.Process:
        """The first one, as the host sees it."""
        self.container.reload()
        return psutil.Process(self.container.attrs["State"]["Pid"])

    def story(self) -> str:
        lines = ""
        with suppress(APIError):  # it is being removed
            lines = self.container.logs(tail=15).decode(errors="replace")
        return f"--- {self.name} {self.codes} deleted={self._deleted.is_set()}:\n{lines}"

    # -- kubelet --

    def _live(self) -> None:
        while True:
            self.container.start()
            self._attend()
            self.codes.append(self.container.wait()["StatusCode"])
            self.ready = False
            if self._spec.get("restartPolicy", "Always") == "Never":
                break
            restarts = len(self.codes)
            if self._deleted.wait(0 if restarts == 1 else _BACK_OFF * 2 ** (restarts - 2)):
                break
        self._node.stories.append(self.story())
        self.container.remove()
        shutil.rmtree(self._own)

    def _attend(self) -> None:
        """Until the container has ended, or has been asked to."""
        startup = Probe(self.main["startupProbe"])
        liveness = Probe(self.main["livenessProbe"], _QUICKER)
        readiness = Probe(self.main["readinessProbe"])
        started = False
        while not self._deleted.wait(_LOOK_SECONDS):
            self.container.reload()
            if self.container.status != "running":
                return
            probe = liveness if started else startup
            verdict = probe.ask(self)
            if verdict is False:
                self._end(probe.spec.get("terminationGracePeriodSeconds", self._grace))
                return
            started = started or verdict is True
            if started and (ready := readiness.ask(self)) is not None:
                self.ready = ready
        self._end(self._grace)

    def _end(self, grace: int) -> None:
        if grace:
            self.container.stop(timeout=grace)
        else:
            with suppress(APIError):  # it has just ended
                self.container.kill()

    # -- what the template says --

    def _options(self) -> dict[str, Any]:
        main = fields(
            self.name, self.main, "args", "env", "image", "livenessProbe", "name", "ports",
            "readinessProbe", "resources", "securityContext", "startupProbe", "volumeMounts",
        )  # fmt: skip
        environment = self._environment(main["env"])
        limits, requests = main["resources"]["limits"], main["resources"]["requests"]
        memory = int(quantity(limits["memory"]))
        return {
            "image": main["image"],
            "command": [_expanded(one, environment) for one in main["args"]],
            "environment": environment,
            "hostname": self.name,
            "labels": self.labels,
            "mem_limit": memory,
            "memswap_limit": memory,
            "nano_cpus": int(quantity(limits["cpu"]) * 1e9),
            "cpu_shares": int(quantity(requests["cpu"]) * 1024),
            "volumes": self._mounts(main["volumeMounts"]),
            "healthcheck": {"test": ["NONE"]},  # the image's own is nothing to kubelet
            **self._security(main["securityContext"]),
        }

    def _security(self, own: Mapping[str, Any]) -> dict[str, Any]:
        given = fields(
            self.name, {**self._spec["securityContext"], **own}, "allowPrivilegeEscalation",
            "capabilities", "fsGroup", "readOnlyRootFilesystem", "runAsGroup", "runAsNonRoot",
            "runAsUser",
        )  # fmt: skip
        assert given["runAsUser"] != 0 or not given["runAsNonRoot"]
        return {
            "user": f"{given['runAsUser']}:{given['runAsGroup']}",
            "group_add": [str(given["fsGroup"])] if "fsGroup" in given else [],
            "read_only": given.get("readOnlyRootFilesystem", False),
            "cap_drop": given.get("capabilities", {}).get("drop", []),
            "security_opt": (
                [] if given.get("allowPrivilegeEscalation", True) else ["no-new-privileges"]
            ),
        }

    def _environment(self, variables: list[Mapping[str, Any]]) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in variables:
            text = one["value"] if "value" in one else self._field(one["valueFrom"]["fieldRef"])
            found[one["name"]] = _expanded(text, found)
        return found

    def _field(self, reference: Mapping[str, str]) -> str:
        path = reference["fieldPath"]
        if label := re.fullmatch(r"metadata\.labels\['(.+)'\]", path):
            return self.labels.get(label.group(1), "")
        return {"metadata.name": self.name, "status.podIP": self.address}[path]

    def _mounts(self, mounts: list[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
        volumes = {one["name"]: one for one in self._spec["volumes"]}
        found = {}
        for mount in mounts:
            given = fields(self.name, mount, "mountPath", "name", "readOnly")
            volume = volumes[given["name"]]
            place = directory_of(volume, self._own, self._node.directory, self._node.objects)
            fixed = "configMap" in volume or "secret" in volume
            give_to(self._spec["securityContext"].get("fsGroup"), place, writable=not fixed)
            read_only = given.get("readOnly") or fixed
            found[str(place)] = {"bind": given["mountPath"], "mode": "ro" if read_only else "rw"}
        return found


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Of $(VARIABLE), those that are known."""
    return re.sub(r"\$\((\w+)\)", lambda match: known.get(match[1], match[0]), text)
