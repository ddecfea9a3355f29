"""Reads a job file and --set arguments, and remembers where each value came from.

Pydantic sees plain dicts; the line of a key is looked up here afterwards. Scalars follow YAML 1.2:
1e-3 is a number, yes is text, and 12:30 isn't 750.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from fleet_config.errors import UserError

KeyPath = tuple[str, ...]


class _CoreLoader(SafeConstructor, yaml.BaseLoader):
    """Plain data only; a BaseLoader knows no scalar types yet: YAML 1.2's core ones follow."""


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first
    )


@dataclass
class Source:
    """The values of a job file with the overrides applied, and where they stand."""

    file: Path
    data: dict[str, Any]
    _lines: dict[KeyPath, int] = field(default_factory=dict)
    _overrides: dict[KeyPath, str] = field(default_factory=dict)

    def where(self, path: KeyPath) -> str:
        """`conf/x.yaml:12` or `--set a.b=c` for the nearest enclosing key that was written."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._overrides:
                return f"--set {self._overrides[path[:end]]}"
            if path[:end] in self._lines:
                return f"{self.file}:{self._lines[path[:end]]}"
        return str(self.file)

    def line(self, path: KeyPath) -> int:
        """For sorting: the line in the file; overrides come last, what has no line first."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._overrides:
                return 2**31
            if path[:end] in self._lines:
                return self._lines[path[:end]]
        return 0

    def override(self, argument: str) -> None:
        """Applies one "a.b=value"."""
        keys, equals, text = argument.partition("=")
        path = tuple(keys.strip().split("."))
        if not equals or not all(path):
            raise UserError(f"--set {argument}: write it as section.key=value")
        value = _parse_value(argument, text)
        node = self.data
        for depth, key in enumerate(path[:-1], start=1):
            inner = node.get(key)
            if inner is None:
                inner = node[key] = {}
                self._overrides[path[:depth]] = argument
            if not isinstance(inner, dict):
                above = ".".join(path[:depth])
                raise UserError(
                    f"--set {argument}: {above} is {_a(inner)}, not a section; replace it as "
                    f"a whole: --set {above}=..."
                )
            node = inner
        node[path[-1]] = value
        self._forget_below(path)
        self._overrides[path] = argument

    def _forget_below(self, path: KeyPath) -> None:
        for known in (self._lines, self._overrides):
            for key in [key for key in known if key[: len(path)] == path]:
                del known[key]


def read_source(file: Path, overrides: Sequence[str]) -> Source:
    """Reads the file and applies the overrides in order."""
    source = Source(file, {})
    root = _compose(_read_text(file), str(file))
    if root is None:
        raise UserError(f"{file} is empty; conf/ and conf/data/ have examples")
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"{file}:{_line(root)}: it must be made of keys and values (key: value)")
    source.data = _Reader(str(file), source._lines).mapping(root, ())
    for argument in overrides:
        source.override(argument)
    return source


class _Reader:
    """Turns YAML nodes into values, noting lines and refusing what YAML lets pass silently."""

    def __init__(self, name: str, lines: dict[KeyPath, int]) -> None:
        self._name = name
        self._lines = lines
        self._constructor = _CoreLoader("")
        self._open: list[yaml.Node] = []

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if any(node is outer for outer in self._open):
            raise UserError(f"{self._name}:{_line(node)}: an alias refers to what it stands in")
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, str(i))) for i, item in enumerate(node.value)]
            return self._scalar(node)
        finally:
            self._open.pop()

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise UserError(f"{self._name}:{_line(key_node)}: a key must be a single word")
            key = key_node.value
            inner = (*path, key)
            if key in result:
                raise UserError(
                    f"{self._name}:{_line(key_node)}: {'.'.join(inner)} is there twice, first in "
                    f"line {self._lines[inner]}; remove one"
                )
            self._lines[inner] = _line(key_node)
            result[key] = self.value(value_node, inner)
        return result

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError):
            raise UserError(
                f"{self._name}:{_line(node)}: {node.value!r} with the tag {node.tag} can't be "
                "read; write plain text or a number"
            ) from None


def _parse_value(argument: str, text: str) -> Any:
    name = f"--set {argument}"
    node = _compose(text, name)
    return None if node is None else _Reader(name, {}).value(node, ())


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{file} does not exist; conf/ has ready job files") from None
    except IsADirectoryError:
        raise UserError(f"{file} is a directory; name a .yaml file in it") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise UserError(f"{file} can't be read: {error.strerror}") from None


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        raise UserError(_syntax_sentence(error, text, name)) from None
    except yaml.YAMLError as error:
        raise UserError(f"{name}: not YAML: {' '.join(str(error).split())}") from None


def _syntax_sentence(error: yaml.MarkedYAMLError, text: str, name: str) -> str:
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark else 0
    where = name if name.startswith("--set") else f"{name}:{line + 1}"
    lines = text.splitlines()
    if line < len(lines) and "\t" in lines[line][: len(lines[line]) - len(lines[line].lstrip())]:
        return f"{where}: indented with a tab; YAML wants spaces"
    return f"{where}: not YAML: {', '.join(filter(None, (error.context, error.problem)))}"


def _a(value: Any) -> str:
    return "a list" if isinstance(value, list) else "a single value"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
