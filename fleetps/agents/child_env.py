"""The environment of a Paddle process: what Paddle reads, and what our child program reads."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet_config.cpu import MKL_VARIABLE, mkl_setting
from fleetps.coordinator.access import TOKEN_FILE

# Settings of the process around us that mean something else, or nothing, to the child.
_DROPPED = ("PADDLE_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "TF_CONFIG")


@dataclass(frozen=True)
class Place:
    """Where a Paddle process stands in its job."""

    kind: str
    rank: int
    host: str
    port: str
    servers: Sequence[str]
    workers: int


def local_environment(outer: Mapping[str, str]) -> dict[str, str]:
    """For training without servers."""
    return {**_common(outer), "FLEETPS_LOCAL": "1", "FLEETPS_INSTANCE": "local"}


def paddle_environment(
    outer: Mapping[str, str],
    place: Place,
    *,
    coordinator: str,
    patience: float,
    instance: str,
    generation: int,
) -> dict[str, str]:
    """For a server or worker. Gloo stays off: a group of it never takes a lost process back.

    `patience`: seconds for which the coordinator may be away.
    """
    role = {"TRAINING_ROLE": "PSERVER"}
    if place.kind == "worker":
        role = {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(place.rank)}
    return {
        **_common(outer),
        **role,
        "POD_IP": place.host,
        "PADDLE_PORT": place.port,
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(place.servers),
        "PADDLE_TRAINERS_NUM": str(place.workers),
        "PADDLE_WITH_GLOO": "0",
        "FLEETPS_COORDINATOR": coordinator,
        "FLEETPS_PATIENCE": f"{patience:g}",
        "FLEETPS_INSTANCE": instance,
        "FLEETPS_GENERATION": str(generation),
        "FLEETPS_RANK": str(place.rank),
    }


def _common(outer: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in outer.items() if not name.startswith(_DROPPED)}
    # The job file says how many threads there are; each with an OpenMP pool would be too many.
    kept.setdefault("OMP_NUM_THREADS", "1")
    if kept.get(TOKEN_FILE):
        kept[TOKEN_FILE] = os.path.abspath(kept[TOKEN_FILE])  # noqa: PTH100  the child's own directory is another
    kept["PYTHONHASHSEED"] = "0"
    kept["PYTHONUNBUFFERED"] = "1"
    mkl = mkl_setting()
    if mkl is not None:
        kept.setdefault(MKL_VARIABLE, mkl)
    return kept
