"""Networks. Each file beside this one registers one model (see `base`)."""

from __future__ import annotations

import importlib
import pkgutil

from fleetps.models.base import Inputs, Model, Params, get, names, parse_params, register

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Inputs", "Model", "Params", "get", "names", "parse_params", "register"]
