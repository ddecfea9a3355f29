"""How much memory processes take, and may take, of the machine and of their control groups."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_M_ARENA_MAX = -8  # of mallopt(3)


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
    """Bytes that this process may still take."""
    rooms = (max(0, limit - _used(group, files)) for group, files, limit in _limits())
    return min([int(psutil.virtual_memory().available), *rooms])


def memory_limit() -> int:
    """Bytes that this process and those in its control group may take together."""
    limits = (limit for _, _, limit in _limits())
    return min([int(psutil.virtual_memory().total), *limits])


def resident_memory(pid: int) -> int | None:
    """Bytes that a process and all that it has started hold; None: it has ended."""
    try:
        process = psutil.Process(pid)
        return sum(int(p.memory_info().rss) for p in (process, *process.children(recursive=True)))
    except psutil.Error:
        return None


def keep_few_arenas(count: int) -> None:
    """For this process, before it has threads: each arena of glibc keeps what its threads freed."""
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # musl has none
        mallopt(_M_ARENA_MAX, count)


def _limits() -> Iterator[tuple[Path, _Files, int]]:
    """Each control group with a limit that this process is in, and the limit."""
    for line in _text(_OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limits_above(_GROUPS, path, _V2)
        elif "memory" in controllers.split(","):
            yield from _limits_above(_GROUPS / "memory", path, _V1)


def _limits_above(root: Path, path: str, files: _Files) -> Iterator[tuple[Path, _Files, int]]:
    """From a group up to the root; in a container the root may be the group itself."""
    group = root / path.lstrip("/")
    for directory in (group, *group.parents):
        if directory.is_relative_to(root):
            limit = _text(directory / files.limit).strip()
            if limit.isdigit():
                yield directory, files, int(limit)


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
