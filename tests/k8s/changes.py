"""Changes of objects, for mistakes.

A place is a path of words: a key, an index, or in a list of objects the `name` of one.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from manifests import Object, title


@dataclass(frozen=True)
class Mistake:
    what: str
    said: str  # a part of the sentence that finds it
    make: Callable[[list[Object]], None]

    def made_in(self, objects: list[Object]) -> list[Object]:
        changed = deepcopy(objects)
        self.make(changed)
        assert changed != objects, f"{self.what}: nothing was changed"
        return changed


def _find(objects: list[Object], name: str) -> Object:
    return next(one for one in objects if title(one) == name or one["kind"] == name)


def _step(node: Any, word: str) -> Any:
    if isinstance(node, list) and not word.isdigit():
        return next(one for one in node if one["name"] == word)
    return node[int(word) if isinstance(node, list) else word]


def _parent(objects: list[Object], name: str, place: str) -> tuple[Any, Any]:
    node: Any = _find(objects, name)
    *way, last = place.split()
    for word in way:
        node = _step(node, word)
    if isinstance(node, list):
        return node, node.index(_step(node, last))
    return node, last


def put(name: str, place: str, value: Any) -> Callable[[list[Object]], None]:
    def make(objects: list[Object]) -> None:
        node, last = _parent(objects, name, place)
        node[last] = value

    return make


def drop(name: str, place: str) -> Callable[[list[Object]], None]:
    def make(objects: list[Object]) -> None:
        node, last = _parent(objects, name, place)
        del node[last]

    return make


def add(name: str, place: str, value: Any) -> Callable[[list[Object]], None]:
    def make(objects: list[Object]) -> None:
        node, last = _parent(objects, name, place)
        node[last].append(value)

    return make


def remove(name: str) -> Callable[[list[Object]], None]:
    return lambda objects: objects.remove(_find(objects, name))


def also(one: Object) -> Callable[[list[Object]], None]:
    return lambda objects: objects.append(one)


def in_job_file(old: str, new: str) -> Callable[[list[Object]], None]:
    def make(objects: list[Object]) -> None:
        data = _find(objects, "ConfigMap")["data"]
        data["job.yaml"] = data["job.yaml"].replace(old, new)

    return make


def rename(name: str, place: str, new: str) -> Callable[[list[Object]], None]:
    """Another key for the same value."""

    def make(objects: list[Object]) -> None:
        node, last = _parent(objects, name, place)
        node[new] = node.pop(last)

    return make
