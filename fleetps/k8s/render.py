"""`fleetps k8s render`: all objects of a job, made of k8s/base and a job file."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from fleet_config.errors import UserError
from fleet_config.job import Job, load_job
from fleet_config.source import read_source
from fleetps.k8s.base_objects import Base, Object, config_map, read_base

_INSTANCE = "app.kubernetes.io/instance"
_COMPONENT = "app.kubernetes.io/component"
_SET = "--set="
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 40  # so that NAME-coordinator-0 and what Kubernetes adds to it fit into a label
_LONGEST_LABEL = 63
# Where the pods have volumes; the rest of their file system is read-only.
_HOME = PurePosixPath("/app")
_DATA, _RUNS = _HOME / "data", _HOME / "runs"


@dataclass(frozen=True)
class Wanted:
    """What a user may choose; None: as in k8s/base, the numbers as in the job file."""

    config: Path
    image: str | None = None
    servers: int | None = None
    workers: int | None = None
    namespace: str | None = None
    name: str | None = None


def render(wanted: Wanted) -> list[Object]:
    """The objects of a job, the ConfigMap with its file first.

    Raises:
        UserError: the job file can't be used in a pod, or a name is none.
    """
    base, job = read_base(), load_job(wanted.config)
    _check_options(wanted)
    _check_paths(wanted.config)
    name = wanted.name or base.image
    data = {base.job_key: wanted.config.read_text(encoding="utf-8")}
    job_map = config_map(f"{name}{base.job_map.removeprefix(base.image)}", base.job_labels, data)
    changes = _Changes(
        base=base,
        name=name,
        image=wanted.image or f"{base.image}:{base.tag}",
        job_map=job_map["metadata"]["name"],
        servers=wanted.servers or job.cluster.servers,
        workers=wanted.workers or job.cluster.workers,
    )
    job_map["metadata"]["labels"] = changes.of(job_map["metadata"]["labels"])
    objects = [job_map, *(changes.sized(changes.of(one)) for one in base.objects)]
    return [_placed(one, wanted.namespace or base.namespace) for one in objects]


def overridden(objects: list[Object], config: Path) -> list[str]:
    """What the job file says, and the pods' own --set puts something else in place of."""
    written = read_source(config, ()).data
    workers = next(one for one in objects if one["kind"] == "Job")["spec"]["template"]["spec"]
    notes = []
    for argument in workers["containers"][0]["args"]:
        key, _, value = argument.removeprefix(_SET).partition("=")
        given = _value_of(written, key) if argument.startswith(_SET) else None
        if given is not None and str(given) != value:
            notes.append(f"{config}: {key} is {given}, but in the pods it is {value}")
    return notes


def _value_of(written: dict[str, Any], key: str) -> Any:
    node: Any = written
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def to_yaml(objects: list[Object]) -> str:
    return str(yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=100))


@dataclass(frozen=True)
class _Changes:
    base: Base
    name: str
    image: str
    job_map: str
    servers: int
    workers: int

    def of(self, node: Any) -> Any:
        """The same with other names and another image, wherever they are."""
        if isinstance(node, list):
            return [self.of(one) for one in node]
        if isinstance(node, dict):
            return {key: self._value(key, value) for key, value in node.items()}
        if isinstance(node, str):
            return re.sub(rf"\b{self.base.image}-(?=[a-z])", f"{self.name}-", node)
        return node

    def _value(self, key: str, value: Any) -> Any:
        if key == _INSTANCE:
            return self.name
        if key == "image" and value == self.base.image:
            return self.image
        if key == "configMap" and value.get("name") == self.base.job_map:
            return {**value, "name": self.job_map}
        return self.of(value)

    def sized(self, one: Object) -> Object:
        component = one["metadata"]["labels"][_COMPONENT]
        if one["kind"] == "Job":
            one["spec"]["parallelism"] = self.workers
        elif one["kind"] == "StatefulSet" and component == "server":
            one["spec"]["replicas"] = self.servers
        elif one["kind"] == "StatefulSet":
            sizes = {"SERVERS": self.servers, "WORKERS": self.workers}
            for variable in one["spec"]["template"]["spec"]["containers"][0]["env"]:
                if variable["name"] in sizes:
                    variable["value"] = str(sizes[variable["name"]])
        return one


def _placed(one: Object, namespace: str) -> Object:
    name, rest = one["metadata"]["name"], one["metadata"]
    return {**one, "metadata": {"name": name, "namespace": namespace, **rest}}


def _check_options(wanted: Wanted) -> None:
    for option, text, most in (
        ("--name", wanted.name, _LONGEST_NAME),
        ("--namespace", wanted.namespace, _LONGEST_LABEL),
    ):
        if text is not None and not (_LABEL.fullmatch(text) and len(text) <= most):
            raise UserError(
                f"{option} {text}: use lower-case letters, digits and dashes, at most {most}, "
                "beginning with a letter and not ending with a dash"
            )
    if wanted.image is not None and not re.fullmatch(r"\S+", wanted.image):
        raise UserError(f"--image {wanted.image!r} is not the name of an image")


def _check_paths(config: Path) -> None:
    job = Job.model_validate(read_source(config, ()).data)  # paths as they are written
    for key, path, volume in (
        ("data.path", job.data.path, _DATA),
        ("job.output", job.job.output, _RUNS),
    ):
        place = _HOME / path
        if volume not in (place, *place.parents):
            raise UserError(
                f"{config}: {key} is {path}, but the pods have their volume for it at {volume}; "
                f"give it a path in there, such as {volume.relative_to(_HOME)}"
            )


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as such, and no aliases."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)
