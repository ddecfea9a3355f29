"""Objects by the schemas of Kubernetes' own kinds, and of the other kinds that overlays use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from manifests import Manifests, Object, title

# The oldest that has what the base needs, one between, and the newest whose schemas there are.
VERSIONS = ("1.26.0", "1.31.0", "1.37.0")

_SCHEMAS = Path(__file__).with_name("schemas")
# In the API group of any of these a kind is Kubernetes' own.
_OWN_GROUPS = {"", "apps", "batch", "policy", "networking.k8s.io", "scheduling.k8s.io"}


def complaints(objects: list[Object], version: str) -> Iterator[str]:
    """What the schemas of a Kubernetes version, and those beside this file, have against them."""
    for one in objects:
        if _group(one) in _OWN_GROUPS:
            yield from _by_kubernetes(title(one), one, version)
        else:
            yield from _by_schema(one)
            yield from _inside(one, version)


def _group(one: Object) -> str:
    group, _, version = str(one["apiVersion"]).rpartition("/")
    return group if version else ""


def _by_kubernetes(where: str, one: Object, version: str) -> Iterator[str]:
    # Most objects are in several overlays, and each takes a tenth of a second.
    for complaint in _of_text(json.dumps(one, sort_keys=True), version):
        yield f"{where}: {complaint}"


@cache
def _of_text(text: str, version: str) -> tuple[str, ...]:
    try:
        kubernetes_validate.validate(json.loads(text), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        place = ".".join(str(part) for part in error.path)
        return (f"{place}: {error.message}",)
    except (kubernetes_validate.InvalidSchemaError, kubernetes_validate.SchemaNotFoundError) as e:
        return (str(e),)
    return ()


def _inside(one: Object, version: str) -> Iterator[str]:
    """The Jobs and pods that an object of another kind is to make."""
    for job in one.get("spec", {}).get("replicatedJobs", []):
        whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, **job["template"]}
        yield from _by_kubernetes(f"{title(one)}, {job['name']}", whole, version)
    for pods in Manifests([one]).pods:
        whole = {"apiVersion": "v1", "kind": "PodTemplate", "template": pods.template}
        yield from _by_kubernetes(f"{title(one)}, {pods.component}", whole, version)


@cache
def schemas() -> dict[tuple[str, str], Any]:
    """By apiVersion and kind."""
    found = [yaml.safe_load(file.read_text()) for file in sorted(_SCHEMAS.glob("*.yaml"))]
    return {(one["apiVersion"], one["kind"]): one["spec"] for one in found}


def _by_schema(one: Object) -> Iterator[str]:
    schema = schemas().get((one["apiVersion"], one["kind"]))
    if schema is None:
        yield f"{title(one)}: there is no schema for {one['apiVersion']} in tests/k8s/schemas"
        return
    yield from _errors(title(one), one.get("spec", {}), schema)


def _errors(where: str, spec: Any, schema: Any) -> Iterator[str]:
    for error in jsonschema.Draft202012Validator(schema).iter_errors(spec):
        place = ".".join(str(part) for part in error.absolute_path)
        yield f"{where}: spec.{place}: {error.message}"


@cache
def published(file: Path) -> dict[tuple[str, str], Any]:
    """The schemas in CustomResourceDefinitions, as `kubectl get crd -o yaml` writes them."""
    found = {}
    for document in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader):
        for one in (document or {}).get("items", [document]):
            if one and one.get("kind") == "CustomResourceDefinition":
                spec = one["spec"]
                for version in spec["versions"]:
                    schema = version["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
                    name = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                    found[name] = closed(schema)
    return found


def closed(schema: Any) -> Any:
    """A structural schema under which fields that it doesn't have are refused, not dropped."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: closed(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        made["properties"] = {name: closed(one) for name, one in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    if schema.get("nullable") and "type" in schema:
        made["type"] = [schema["type"], "null"]
    return made


def complaints_by(objects: list[Object], schemas_: dict[tuple[str, str], Any]) -> Iterator[str]:
    """What published schemas have against objects of other kinds than Kubernetes' own."""
    for one in objects:
        if _group(one) not in _OWN_GROUPS:
            schema = schemas_.get((one["apiVersion"], one["kind"]))
            if schema is None:
                yield f"{title(one)}: {one['apiVersion']} is in none of the definitions"
            else:
                yield from _errors(title(one), one.get("spec", {}), schema)
