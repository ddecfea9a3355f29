"""That train.py, in the pods, would find its role, its job and its files."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import click
from manifests import Manifests, Pods, environment, expand, title

from fleet_config.endpoints import parse_endpoint
from fleet_config.environment import VARIABLES
from fleet_config.errors import FleetError
from fleet_config.job import Job, load_job
from fleet_config.roles import Role, resolve_role
from fleetps.main import command

_SOURCES = ("fleet_config", "fleetps")
_OURS = re.compile(r"[\"'](FLEETPS_[A-Z_]+)[\"']")
_USED = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_RESTART = {"StatefulSet": "always", "Deployment": "always", "Job": "until-done"}
_HOME = PurePosixPath("/app")


def read_variables() -> set[str]:
    """All that our code asks the environment for."""
    root = Path(__file__).parents[2]
    files = (file for part in _SOURCES for file in (root / part).rglob("*.py"))
    found = {name for file in files for name in _OURS.findall(file.read_text(encoding="utf-8"))}
    return {*found, *VARIABLES, "OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE"}


_KNOWN = read_variables()


def variables(all_: Manifests) -> Iterator[str]:
    for pods in all_.pods:
        one = pods.main
        if one is None:
            continue
        names = [variable["name"] for variable in one.get("env", [])]
        used = set(_USED.findall(" ".join(one["args"])))
        used |= {n for v in one.get("env", []) for n in _USED.findall(str(v.get("value", "")))}
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{pods.where}: sets {name} twice"
            if name not in _KNOWN | used:
                yield f"{pods.where}: sets {name}, which nobody reads"
        for variable in one.get("env", []):
            if variable["name"] == "FLEETPS_TOKEN":
                yield f"{pods.where}: whoever sees the pod's environment has the token"
        try:
            known = environment(pods, one)
            _ = [expand(text, known) for text in one["args"]]
        except KeyError as error:
            yield f"{pods.where}: $({error.args[0]}) isn't set before it is used"


def _players(all_: Manifests) -> Iterator[tuple[Pods, dict[str, Any], dict[str, str]]]:
    """Pods that run train.py, the container, and its environment."""
    for pods in all_.pods:
        if pods.main is not None:
            try:
                yield pods, pods.main, environment(pods, pods.main)
            except KeyError:
                continue  # told by `variables`


def roles(all_: Manifests) -> Iterator[str]:
    for pods, _, known in _players(all_):
        try:
            role = resolve_role(known)
        except FleetError as error:
            yield f"{pods.where}: {error}"
            continue
        if role.kind != pods.component:
            yield f"{pods.where}: its pods are called {pods.component} but play a {role.kind}"
        yield from _coordinator(all_, pods, role)
        if role.kind == "server":
            yield from _server(all_, pods, role)
        wanted = _RESTART.get(pods.owner["kind"])
        if wanted and known.get("FLEETPS_RESTART") != wanted:
            yield f"{pods.where}: needs FLEETPS_RESTART={wanted}"


def _coordinator(all_: Manifests, pods: Pods, role: Role) -> Iterator[str]:
    host, port = parse_endpoint(role.coordinator or "", "COORDINATOR")
    service = all_.named("Service", host)
    if service is None:
        yield f"{pods.where}: COORDINATOR names no Service: {host}"
        return
    if port not in [one["port"] for one in service["spec"]["ports"]]:
        yield f"{pods.where}: {title(service)} has no port {port}"
    selected = all_.selected({"matchLabels": service["spec"].get("selector", {})})
    if not any(one.component == "coordinator" for one in selected):
        yield f"{pods.where}: {title(service)} leads to no coordinator"
    if role.kind == "coordinator" and pods.port(port) is None:
        yield f"{pods.where}: it would listen at {port}, which is no port of its container"


def _server(all_: Manifests, pods: Pods, role: Role) -> Iterator[str]:
    host, port = parse_endpoint(role.endpoint or "", "SERVER_ENDPOINT")
    if pods.port(port) is None:
        yield f"{pods.where}: it would listen at {port}, which is no port of its container"
    if pods.owner["kind"] != "StatefulSet":
        return
    first, _, service = host.partition(".")
    if first != f"{pods.owner['metadata']['name']}-0":
        yield f"{pods.where}: SERVER_ENDPOINT doesn't begin with the pod's name: {host}"
    if service != pods.owner["spec"].get("serviceName"):
        yield f"{pods.where}: SERVER_ENDPOINT isn't a name that its Service gives: {host}"


def _job_of(all_: Manifests, pods: Pods, known: dict[str, str]) -> Job:
    """What its train.py would read; FleetError or ClickException: it couldn't."""
    args = [expand(text, known) for text in (pods.main or {})["args"]]
    context = command.make_context("train.py", args[args.index("train.py") + 1 :])
    text = _file(all_, pods, PurePosixPath(context.params["config"]))
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "job.yaml"
        file.write_text(text, encoding="utf-8")
        return load_job(file, context.params["overrides"])


def _file(all_: Manifests, pods: Pods, path: PurePosixPath) -> str:
    """The text of a file that a ConfigMap puts into the container."""
    volume = _volume(pods, path)
    name = volume.get("configMap", {}).get("name", "") if volume else ""
    found = all_.named("ConfigMap", name)
    if found is None or path.name not in found.get("data", {}):
        raise click.ClickException(f"there is no {path} in its pods")
    return str(found["data"][path.name])


def _mount(pods: Pods, path: PurePosixPath) -> dict[str, Any] | None:
    mounts = (pods.main or {}).get("volumeMounts", [])
    inside = [m for m in mounts if PurePosixPath(m["mountPath"]) in (path, *path.parents)]
    return max(inside, key=lambda m: len(m["mountPath"]), default=None)


def _volume(pods: Pods, path: PurePosixPath) -> dict[str, Any] | None:
    mount = _mount(pods, path)
    if mount is None:
        return None
    own = {"name": mount["name"], "claim": True} if mount["name"] in pods.claims else None
    return next((v for v in pods.spec.get("volumes", []) if v["name"] == mount["name"]), own)


def job_files(all_: Manifests) -> Iterator[str]:
    found: dict[str, Job] = {}
    for pods, _, known in _players(all_):
        try:
            job = _job_of(all_, pods, known)
        except (FleetError, click.ClickException, KeyError, ValueError) as error:
            yield f"{pods.where}: train.py would refuse it: {error}"
            continue
        found[pods.component] = job
        yield from _places(pods, job, known)
    # Servers and workers are told by the coordinator how many they are.
    sizes = {"servers": 1, "workers": 1}
    cut = [
        one.model_copy(update={"cluster": one.cluster.model_copy(update=sizes)})
        for one in found.values()
    ]
    if len({one.digest() for one in cut}) > 1:
        yield f"{', '.join(found)} have different jobs"
    if "coordinator" in found:
        yield from _sizes(all_, found["coordinator"])


def _places(pods: Pods, job: Job, known: dict[str, str]) -> Iterator[str]:
    """Each path of the job is in a volume, and in the right one."""
    here = Path.cwd()
    inside = {
        key: _HOME / (path.relative_to(here) if path.is_relative_to(here) else path)
        for key, path in (
            ("data.path", job.data.path),
            ("job.output", job.job.output),
            ("checkpoint.path", job.checkpoint_dir),
        )
    }
    for key, path in inside.items():
        mount, volume = _mount(pods, path), _volume(pods, path)
        if mount is None or volume is None:
            yield f"{pods.where}: {key} is {path}, where no volume is"
            continue
        shared = "persistentVolumeClaim" in volume
        if key != "job.output" and not shared:
            yield f"{pods.where}: {key} is {path}, which the others don't see"
        writes = key != "data.path" or pods.component == "coordinator"
        if writes and mount.get("readOnly"):
            yield f"{pods.where}: {key} is {path}, where it may not write"
    for name, writes in (("FLEETPS_TOKEN_FILE", False), ("FLEETPS_PULSE_FILE", True)):
        path = PurePosixPath(known.get(name, "/"))
        volume = _volume(pods, path)
        if volume is None or ("secret" in volume) == writes:
            yield f"{pods.where}: {name} is {path}, where it can't be"
    if _mount(pods, PurePosixPath("/tmp")) is None:
        yield f"{pods.where}: has no /tmp"


def _sizes(all_: Manifests, job: Job) -> Iterator[str]:
    """All servers are waited for, and no more workers than there are."""
    for kind, wanted in (("server", job.cluster.servers), ("worker", job.cluster.workers)):
        there = [_number(pods) for pods in all_.pods if pods.component == kind and pods.main]
        if any(one is None for one in there):
            continue  # of a kind that has numbers elsewhere
        number = sum(one or 0 for one in there)
        if number < wanted or (kind == "server" and number > wanted):
            yield f"the coordinator waits for {wanted} {kind}s, but there are {number}"


def _number(pods: Pods) -> int | None:
    spec = pods.owner["spec"]
    key = {"StatefulSet": "replicas", "Deployment": "replicas", "Job": "parallelism"}
    field = key.get(pods.owner["kind"])
    return None if field is None else int(spec.get(field, 1))
