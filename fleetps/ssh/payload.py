"""The code as one compressed archive: of a checkout, or of a wheel."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

from fleet_config.errors import UserError

# What a host needs of a checkout.
_PARTS = ("fleet_config", "fleetps", "train.py", "pyproject.toml", "requirements.lock")
_NEEDED = _PARTS[:2]


def packed(source: Path) -> bytes:
    """A .tar.gz that, unpacked, is a directory for PYTHONPATH.

    Raises:
        UserError: `source` is neither a checkout of FleetPS nor a wheel of it.
    """
    into = io.BytesIO()
    try:
        with tarfile.open(fileobj=into, mode="w:gz", compresslevel=6) as archive:
            if source.is_dir():
                _add_checkout(archive, source)
            else:
                _add_wheel(archive, source)
    except (OSError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no wheel"
        raise UserError(
            f"{source}: the code can't be read ({reason}); give --code a directory with "
            f"{' and '.join(_NEEDED)}, or a wheel"
        ) from None
    return into.getvalue()


def _add_checkout(archive: tarfile.TarFile, source: Path) -> None:
    for part in _NEEDED:
        if not (source / part / "__init__.py").exists():
            raise UserError(f"{source} has no package {part}; give --code a checkout or a wheel")
    for part in _PARTS:
        if (source / part).exists():
            archive.add(source / part, part, filter=_wanted)


def _wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if info.name.endswith("__pycache__"):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _add_wheel(archive: tarfile.TarFile, source: Path) -> None:
    with zipfile.ZipFile(source) as wheel:
        names = [name for name in wheel.namelist() if not name.endswith("/")]
        for part in _NEEDED:
            if f"{part}/__init__.py" not in names:
                raise UserError(f"{source} has no package {part}; it is no wheel of FleetPS")
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mode = wheel.getinfo(name).file_size, 0o644
            archive.addfile(info, wheel.open(name))
