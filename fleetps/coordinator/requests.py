"""The arguments of the coordinator's methods as they come over the wire: checked before use.

They are taken from the signatures in protocol.py, so that a method is declared in one place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from fleetps.coordinator.protocol import Coordinator

_FOR_PEOPLE = ("status", "events")  # read with GET


class Arguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def as_keywords(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


def arguments_of(method: Callable[..., Any]) -> type[Arguments]:
    """The model of a method's arguments."""
    hints = get_type_hints(method, include_extras=True)
    parameters = list(inspect.signature(method).parameters.values())[1:]  # without self
    fields: dict[str, Any] = {
        parameter.name: (
            hints[parameter.name],
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in parameters
    }
    return create_model(method.__name__, __base__=Arguments, **fields)


def answer_of(method: Callable[..., Any]) -> TypeAdapter[Any]:
    """What reads a method's answer."""
    return TypeAdapter(get_type_hints(method, include_extras=True)["return"])


METHODS = {
    name: arguments_of(method)
    for name, method in vars(Coordinator).items()
    if inspect.isfunction(method) and name[0] != "_" and name not in _FOR_PEOPLE
}
