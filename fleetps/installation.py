"""Whether what is installed can train, told by versions alone: loads no Paddle."""

from __future__ import annotations

import importlib.metadata

from fleet_config.errors import UserError

_LIMITS = {"protobuf": 5, "numpy": 2}


def check_installation() -> None:
    """Refuse versions that fail later in ways nobody can read.

    Raises:
        UserError: Paddle is missing or has no parameter server (its core left the wheels after
            3.0), protobuf >= 5 ("a_sync_configs is not a attribute"), numpy >= 2 (crash at import).
    """
    for package, limit in _LIMITS.items():
        version = _version(package)
        if version is None or int(version.split(".")[0]) >= limit:
            raise UserError(
                f"{package} {version or 'is missing'}: PaddlePaddle 2.6.2 needs "
                f"{package} < {limit}: pip install '{package}<{limit}'"
            )
    paddle = _version("paddlepaddle") or _version("paddlepaddle-gpu")
    if paddle is None:
        raise UserError("PaddlePaddle is missing: pip install paddlepaddle==2.6.2")
    if not paddle.startswith("2.6."):
        raise UserError(
            f"PaddlePaddle {paddle} is not supported: FleetPS needs 2.6.2, the last tested "
            "wheel with a complete parameter server: pip install paddlepaddle==2.6.2"
        )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
