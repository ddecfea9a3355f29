"""What a model file sees: `Inputs`, `Params`, `mlp` and the registry.

A model is one function in one file of this directory::

    @register("my_model", MyParams)
    def build(inputs: Inputs, params: MyParams) -> Tensor:
        ...
        return logit                      # [batch, 1], float32, no sigmoid

Importing this package imports every file beside it, so adding a model is adding a file. Paddle is
taken from here, too: launchers and agents know models and their parameters, and never load it.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pydantic

from fleet_config.errors import UserError

Tensor = Any  # a paddle.static.Variable: Paddle ships no types


class _Paddle:
    """Paddle, which takes seconds to load, loaded where a network is built."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("paddle"), name)


paddle: Any = _Paddle()


class ModelMistake(UserError):
    """`key`: where in the job file it is."""

    def __init__(self, key: tuple[str, ...], sentence: str) -> None:
        super().__init__(sentence)
        self.key = key


class Params(pydantic.BaseModel):
    """Base of a model's parameters (`model.params` of the job file); unknown keys and wrong types
    are errors.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True)
class Inputs:
    """The features of a batch.

    Attributes:
        dense: [batch, D] float32, or None when the data set has no dense column.
        lookup: maps a table name to the rows of all sparse slots, [batch, slots, dim] float32.
        dims: row width of each table.
    """

    dense: Tensor | None
    lookup: Callable[[str], Tensor]
    dims: Mapping[str, int]

    def embedding(self, table: str = "embedding") -> Tensor:
        """Rows of every sparse slot from one table: [batch, slots, dim] float32.

        A slot with several ids per example gives the sum of their rows.

        Raises:
            UserError: the job file has no such table, or the data set no sparse column.
        """
        if table not in self.dims:
            raise UserError(
                f"the model uses the table '{table}', which the job file doesn't define: "
                f"add tables.{table}"
            )
        return self.lookup(table)


@dataclass(frozen=True)
class Model:
    """A registered network: its parameters' class and the function that builds it."""

    params: type[Params]
    build: Callable[[Inputs, Any], Tensor]


_registry: dict[str, Model] = {}


def register(
    name: str, params: type[Params]
) -> Callable[[Callable[[Inputs, Any], Tensor]], Callable[[Inputs, Any], Tensor]]:
    """Decorator: make a build function known under `name` in the job file."""

    def add(build: Callable[[Inputs, Any], Tensor]) -> Callable[[Inputs, Any], Tensor]:
        assert name not in _registry, f"two models are called {name}"
        _registry[name] = Model(params, build)
        return build

    return add


def names() -> list[str]:
    """Names of all models, sorted."""
    return sorted(_registry)


def get(name: str) -> Model:
    """The model of this name.

    Raises:
        ModelMistake: there is none; names the nearest.
    """
    if name not in _registry:
        near = difflib.get_close_matches(name, _registry, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names())}"
        raise ModelMistake(("model", "name"), f"model.name: no model is called '{name}'; {hint}")
    return _registry[name]


def parse_params(name: str, values: Mapping[str, Any]) -> Params:
    """Check `model.params` against the model's class.

    Raises:
        ModelMistake: no such model, an unknown key or a wrong value; names the key, the nearest
        valid one, and what is expected.
    """
    cls = get(name).params
    try:
        return cls.model_validate(dict(values))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        path = tuple(str(part) for part in first["loc"])
        key, where = ".".join(path), ("model", "params", *path)
        if first["type"] == "extra_forbidden":
            known = list(cls.model_fields)
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"{name} takes {', '.join(known)}"
            sentence = f"model.params.{key} is not a parameter of {name}; {hint}"
        else:
            sentence = f"model.params.{key}: {first['msg']}, not {first['input']!r}"
        raise ModelMistake(where, sentence) from None
