"""From pydantic's errors to sentences that name the key, what was expected and the nearest name."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fleet_config.other_names import our_key, our_kind, why_not
from fleet_config.source import KeyPath

# The key that says which kind of optimizer, schedule or rule a section is.
TAG = "name"

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "literal_error": "{expected}",
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "string_too_short": "text that isn't empty",
    "too_short": "a section with at least one entry",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "a section (keys below it)",
    "model_attributes_type": "a section (keys below it)",
    "dict_type": "a section (keys below it)",
}


@dataclass(frozen=True)
class Problem:
    """One mistake: the key it belongs to and a sentence about it."""

    path: KeyPath
    sentence: str


def explain(error: ValidationError, data: Any, model: type[BaseModel]) -> list[Problem]:
    """A problem per mistake that pydantic found in `data`, which should be a `model`."""
    return [_problem(details, data, model) for details in error.errors()]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`."""
    names = list(known)
    # Swapped letters: modle is model, though difflib finds it nearer to mode.
    swapped = [one for one in names if sorted(one) == sorted(name)]
    close = swapped or difflib.get_close_matches(name, names, n=1)
    return close[0] if close else None


def listed(names: Iterable[str], last: str = "and") -> str:
    """`a, b and c`."""
    *head, tail = names
    return f"{', '.join(head)} {last} {tail}" if head else tail


def _problem(details: ErrorDetails, data: Any, model: type[BaseModel]) -> Problem:
    path = _key_path(details, data)
    key = ".".join(path)
    match details["type"]:
        case "extra_forbidden":
            return Problem(path, _unknown_key(path, data, model))
        case "missing":
            return Problem(path, _missing_key(path, data, model))
        case "union_tag_not_found":
            return Problem(path, f"{key}.{TAG} is missing; use {_kinds(path, data, model)}")
        case "union_tag_invalid":
            return _unknown_kind(path, data, model)
        case "sentence":
            return Problem(path, f"in {key}, {details['msg']}")
        case _:
            return Problem(
                path, f"{key} must be {_expected(details)}, not {_given(details['input'])}"
            )


def _key_path(details: ErrorDetails, data: Any) -> KeyPath:
    """Pydantic's location without what isn't a key: union tags and its mark of a bad key."""
    path: list[str] = []
    node = data
    parts = details["loc"]
    for place, part in enumerate(parts):
        last_is_absent = details["type"] == "missing" and place == len(parts) - 1
        if isinstance(node, Mapping):
            if part not in node and not last_is_absent:
                continue
            # A tag comes once, before the keys below it: {name: adam} has location (.., adam, ..).
            if part == node.get(TAG) and place + 1 < len(parts) and parts[place + 1] in node:
                continue
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            continue
        path.append(str(part))
    return tuple(path)


def _unknown_key(path: KeyPath, data: Any, model: type[BaseModel]) -> str:
    *above, key = path
    owner = _owner(above, data, model)
    kind = _kind(owner)
    wrong = f"{'.'.join(path)} is not a {f'setting of {kind}' if kind else 'known key'}"
    reason = why_not(path)
    if reason:
        return f"there is no {'.'.join(path)}: {reason}"
    other = our_key(path)
    if other:
        return f"{wrong}; did you mean {other}?"
    match = nearest(key, _alike(owner, _at(data, path))) or nearest(key, owner.model_fields)
    if match:
        return f"{wrong}; did you mean {'.'.join([*above, match])}?"
    elsewhere = [other for other in _all_keys(model) if other.rpartition(".")[2] == key]
    if elsewhere and not kind:
        return f"{wrong}; did you mean {listed(elsewhere, 'or')}?"
    takes = kind or ".".join(above) or "the file"
    return f"{wrong}; {takes} takes {listed(owner.model_fields)}"


def _unknown_kind(path: KeyPath, data: Any, model: type[BaseModel]) -> Problem:
    given = _at(data, path)
    # A section of which only the kind is given may be just its name.
    full, kind = (path, given) if isinstance(given, str) else ((*path, TAG), given[TAG])
    sentence = f"{'.'.join(full)} must be {_kinds(path, data, model)}, not {_given(kind)}"
    known = _kind_names(path, data, model)
    other = our_kind(str(kind))
    match = other if other in known else nearest(str(kind), known)
    return Problem(full, f"{sentence}; did you mean {match}?" if match else sentence)


def _alike(owner: type[BaseModel], value: Any) -> list[str]:
    """The keys that would take such a value: those of sections for a section."""
    return [
        name
        for name, field in owner.model_fields.items()
        if isinstance(value, Mapping) == (bool(_models(field.annotation)) or _is_dict(field))
    ]


def _missing_key(path: KeyPath, data: Any, model: type[BaseModel]) -> str:
    *above, key = path
    owner = _owner(above, data, model)
    kind = _kind(owner)
    needs = f"; {kind} needs it" if kind else "; it has no default"
    inner = _models(owner.model_fields[key].annotation)
    if len(inner) > 1:
        needs = f"; use {_kinds(path, data, model)}"
    elif inner:
        required = [name for name, field in inner[0].model_fields.items() if field.is_required()]
        needs = f"; it must give {listed(f'{key}.{name}' for name in required)}"
    return f"{'.'.join(path)} is missing{needs}"


def _expected(details: ErrorDetails) -> str:
    template = _EXPECTED.get(details["type"])
    if template is None:
        return details["msg"]
    return template.format_map(details.get("ctx", {})).replace("'", "")


def _given(value: Any) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {value!r}"
        case Mapping():
            return "a section" if value else "an empty section"
        case list():
            return f"the list {value}"
        case _:
            return str(value)


def _kinds(path: KeyPath, data: Any, model: type[BaseModel]) -> str:
    """`naive, adagrad or adam` for the section at `path`, of which there are several kinds."""
    return listed(_kind_names(path, data, model), "or")


def _kind_names(path: KeyPath, data: Any, model: type[BaseModel]) -> list[str]:
    *above, key = path
    field = _owner(above, data, model).model_fields[key]
    return [name for choice in _models(field.annotation) if (name := _kind(choice))]


def _owner(path: Iterable[str], data: Any, model: type[BaseModel]) -> type[BaseModel]:
    """The class of the section at `path`, unions resolved by the data's `name`."""
    owner, node = model, data
    keys = iter(path)
    for key in keys:
        annotation = owner.model_fields[key].annotation
        node = node[key]
        candidates = _models(annotation)
        if isinstance(node, list):
            node = node[int(next(keys))]
            candidates = _item_models(annotation)
        elif _is_dict(owner.model_fields[key]):
            node = node[next(keys)]
        owner = _chosen(candidates, node)
    return owner


def _chosen(candidates: list[type[BaseModel]], node: Any) -> type[BaseModel]:
    tag = node.get(TAG) if isinstance(node, Mapping) else None
    return next((one for one in candidates if _kind(one) == tag), candidates[0])


def _kind(model: type[BaseModel]) -> str | None:
    """`adam` for the section of that name, None for a section of which there is one kind."""
    field = model.model_fields.get(TAG)
    choices = get_args(field.annotation) if field else ()
    return str(choices[0]) if len(choices) == 1 else None


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _item_models(annotation: Any) -> list[type[BaseModel]]:
    """The sections that a list may hold, where the annotation allows one."""
    if get_origin(annotation) in (list, tuple):
        return _models(annotation)
    return [model for part in get_args(annotation) for model in _item_models(part)]


def _is_dict(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is dict


def _at(data: Any, path: Iterable[str]) -> Any:
    for key in path:
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def _all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = _models(field.annotation)
        if not inner:
            yield prefix + name
        elif len(inner) == 1 and not _is_dict(field):
            yield from _all_keys(inner[0], f"{prefix}{name}.")
