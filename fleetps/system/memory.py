"""How much memory this process may still take, of the machine and of its control groups."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


class _Files(NamedTuple):
    limit: str
    usage: str
    # In memory.stat: what the kernel caches of files, and gives back before anything fails.
    cached: tuple[str, ...]


_V2 = _Files("memory.max", "memory.current", ("inactive_file", "active_file"))
_V1 = _Files(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)


def available_memory() -> int:
    """Bytes."""
    return min(int(psutil.virtual_memory().available), *_rooms())


def _rooms() -> Iterator[int]:
    """What is left in each control group with a limit that this process is in."""
    yield 1 << 62
    for line in _text(_OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _rooms_above(_GROUPS, path, _V2)
        elif "memory" in controllers.split(","):
            yield from _rooms_above(_GROUPS / "memory", path, _V1)


def _rooms_above(root: Path, path: str, files: _Files) -> Iterator[int]:
    """From a group up to the root; in a container the root may be the group itself."""
    group = root / path.lstrip("/")
    for directory in (group, *group.parents):
        if directory.is_relative_to(root):
            limit = _text(directory / files.limit).strip()
            if limit.isdigit():
                yield max(0, int(limit) - _used(directory, files))


def _used(directory: Path, files: _Files) -> int:
    usage = _text(directory / files.usage).strip()
    stat = dict(line.split() for line in _text(directory / "memory.stat").splitlines())
    cached = sum(int(stat.get(name, 0)) for name in files.cached)
    return int(usage) - cached if usage.isdigit() else 0


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""
