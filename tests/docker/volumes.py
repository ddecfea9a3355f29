"""The volumes of pods as directories of this machine, with the rights that kubelet gives them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Objects = dict[tuple[str, str], dict[str, Any]]  # by kind and name


def directory_of(volume: Mapping[str, Any], own: Path, shared: Path, objects: Objects) -> Path:
    """Made if it isn't there. `own`: of the pod, `shared`: of the cluster.

    KeyError: the volume is of an object that isn't there, or of a kind that can't be played here.
    """
    (kind,) = set(volume) - {"name"}
    source = volume[kind]
    if kind == "persistentVolumeClaim":
        claim = objects["PersistentVolumeClaim", source["claimName"]]
        place = shared / "claims" / claim["metadata"]["name"]
        place.mkdir(mode=0o755, parents=True, exist_ok=True)
        return place
    place = own / volume["name"]
    place.mkdir(parents=True)
    if kind == "configMap":
        _write(place, objects["ConfigMap", source["name"]]["data"], 0o644)
    elif kind == "secret":
        secret = objects["Secret", source["secretName"]]["stringData"]
        _write(place, secret, source.get("defaultMode", 0o644))
    else:
        assert kind == "emptyDir", f"a volume of {kind} can't be played here"
        place.chmod(0o777)
    return place


def _write(place: Path, texts: Mapping[str, str], mode: int) -> None:
    """By links, so that kubelet can change all files at once."""
    version = place / "..2026_11_30"
    version.mkdir()
    (place / "..data").symlink_to(version.name)
    for name, text in texts.items():
        (version / name).write_text(text)
        (version / name).chmod(mode)
        (place / name).symlink_to(f"..data/{name}")


def give_to(group: int | None, place: Path, *, writable: bool) -> None:
    """What fsGroup is for; OnRootMismatch: not if it is so already."""
    if group is None or place.stat().st_gid == group:
        return
    for path in (place, *place.rglob("*")):
        os.chown(path, -1, group, follow_symlinks=False)
        if not path.is_symlink():
            more = (0o660 if writable else 0o440) | (0o2110 if path.is_dir() else 0)
            path.chmod(path.stat().st_mode | more)
