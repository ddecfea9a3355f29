"""The option --log-format, or the environment variable in its place."""

from typing import Any

import click
from click.core import ParameterSource

VARIABLE = "FLEETPS_LOG_FORMAT"


class _Format(click.Choice[str]):
    """A wrong value is said to be the variable's where it is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if ctx and ctx.get_parameter_source("log_format") is ParameterSource.ENVIRONMENT:
                error.param_hint = f"the environment variable {VARIABLE}"
            raise


log_format_option = click.option(
    "--log-format",
    type=_Format(["text", "json"]),
    envvar=VARIABLE,
    help=f"--set observe.log_format; or ${VARIABLE}.",
)
