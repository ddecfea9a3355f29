"""The shared token: from FLEETPS_TOKEN, or better from a file named by FLEETPS_TOKEN_FILE."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from fleet_config.errors import UserError

TOKEN = "FLEETPS_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE = "FLEETPS_TOKEN_FILE"  # noqa: S105


def read_token(environ: Mapping[str, str]) -> str | None:
    """The token, or None if the environment has none."""
    token = environ.get(TOKEN, "").strip()
    path = environ.get(TOKEN_FILE, "").strip()
    from_file = _read(path) if path else ""
    if token and from_file and token != from_file:
        raise UserError(f"{TOKEN} and {TOKEN_FILE}={path} hold different tokens; unset one of them")
    token = token or from_file
    if not token.isascii() or any(not character.isprintable() for character in token):
        where = TOKEN if token != from_file else f"{TOKEN_FILE}={path}"
        raise UserError(f"{where}: the token must be one line of printable ASCII characters")
    return token or None


def with_token(environ: Mapping[str, str], new_file: Path) -> dict[str, str]:
    """The environment with a token: the one it has, or a new one in a file that only its owner can
    read.
    """
    if read_token(environ):
        return dict(environ)
    with os.fdopen(os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe(24)}\n")
    return {**environ, TOKEN_FILE: str(new_file.absolute())}


def _read(path: str) -> str:
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"{TOKEN_FILE}={path}: the token cannot be read ({reason})") from error
    if not token:
        raise UserError(f"{TOKEN_FILE}={path}: the file is empty; write the token into it")
    return token
