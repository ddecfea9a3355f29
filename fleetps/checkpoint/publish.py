"""How a checkpoint appears: whole, and so that it outlives a power cut."""

from __future__ import annotations

import os
from pathlib import Path

from fleetps.checkpoint.format import MANIFEST, Manifest


def publish(partial: Path, final: Path, manifest: Manifest) -> None:
    """Write the manifest, see to it that all is on the disk, and rename."""
    (partial / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    for directory, _, files in os.walk(partial, topdown=False):
        for file in files:
            sync(Path(directory, file))
        sync(Path(directory))
    partial.rename(final)
    sync(final.parent)


def sync(path: Path) -> None:
    """What a file or directory is now outlives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
