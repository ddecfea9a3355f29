"""What `kubectl kustomize k8s/base` gives, of the same files; a test compares the two.

`base` beside this module is that directory. Of kustomize there is only as much as its
kustomization.yaml uses: resources, one ConfigMap of a file, the namespace and the image.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

Object: TypeAlias = dict[str, Any]

BASE = Path(__file__).with_name("base")
# So that no two of the characters make a word.
_CHARACTERS = str.maketrans("013ae", "ghkmt")


@dataclass(frozen=True)
class Base:
    """kustomization.yaml and the files that it names."""

    objects: list[Object]
    job_map: str  # the name of the ConfigMap with the job file
    job_labels: dict[str, str]
    job_key: str
    image: str
    tag: str
    namespace: str


def read_base() -> Base:
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text(encoding="utf-8"))
    generator, image = kustomization["configMapGenerator"][0], kustomization["images"][0]
    return Base(
        objects=[one for file in kustomization["resources"] for one in _objects(BASE / file)],
        job_map=generator["name"],
        job_labels=generator["options"]["labels"],
        job_key=generator["files"][0],
        image=image["name"],
        tag=str(image["newTag"]),
        namespace=kustomization["namespace"],
    )


def _objects(file: Path) -> list[Object]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def config_map(name: str, labels: dict[str, str], data: dict[str, str]) -> Object:
    """Its name ends with a hash of it, so that pods with another content are other pods."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-{_hash(data)}", "labels": labels},
        "data": data,
    }


def _hash(data: dict[str, str]) -> str:
    """As kustomize makes it: of the JSON that Go writes, in which it leaves the name empty."""
    document = {"data": data, "kind": "ConfigMap", "name": ""}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return hashlib.sha256(text.encode()).hexdigest()[:10].translate(_CHARACTERS)
