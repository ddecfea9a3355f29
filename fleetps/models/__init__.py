"""Networks. Each file beside this one registers one model (see `base`)."""

from __future__ import annotations

import importlib
import pkgutil

from fleet_config.errors import UserError
from fleetps.models.base import (
    Inputs,
    Model,
    ModelMistake,
    Params,
    get,
    names,
    parse_params,
    register,
)

# Files that import Paddle themselves, where it may not be loaded: their models are not known here.
unread: list[str] = []

for _module in pkgutil.iter_modules(__path__):
    try:
        importlib.import_module(f"{__name__}.{_module.name}")
    except Exception as _error:
        if not isinstance(_error, ModuleNotFoundError) or _error.name != "paddle":
            _file, _kind = f"{__path__[0]}/{_module.name}.py", type(_error).__name__
            raise UserError(f"{_file} can't be loaded: {_kind}: {_error}") from _error
        unread.append(_module.name)

__all__ = [
    "Inputs",
    "Model",
    "ModelMistake",
    "Params",
    "get",
    "names",
    "parse_params",
    "register",
    "unread",
]
