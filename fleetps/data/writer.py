"""Writes a data set: everything into a hidden directory beside it, which one rename publishes."""

import hashlib
import logging
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import zstandard

from fleet_config.errors import UserError
from fleetps.data.dataset import DATASET_FILE, Column, Dataset, Shard, Split
from fleetps.data.distinct import DistinctCounter

log = logging.getLogger(__name__)

Compression = Literal["zstd", "gzip", "none"]
SHARD_ROWS = 100_000
_SUFFIX: Mapping[Compression, str] = {"zstd": ".zst", "gzip": ".gz", "none": ""}
# Level 1: the text is mostly digits of hashes, where higher levels cost much and gain little.
_LEVEL = 1


class _Compressor(Protocol):
    def compress(self, data: Any, /) -> bytes: ...

    def flush(self) -> bytes: ...


class _Plain:
    def compress(self, data: Any, /) -> bytes:
        return bytes(data)

    def flush(self) -> bytes:
        return b""


def _compressor(compression: Compression) -> _Compressor:
    if compression == "gzip":
        return zlib.compressobj(_LEVEL, wbits=31)
    if compression == "zstd":
        # With its checksum, damage is noticed wherever the shard is read.
        return zstandard.ZstdCompressor(_LEVEL, write_checksum=True).compressobj()
    return _Plain()


class _ShardFile:
    """One shard while it is written."""

    def __init__(self, path: Path, compression: Compression) -> None:
        self.rows = 0
        self._path = path
        self._bytes = 0
        self._compressor = _compressor(compression)
        self._digest = hashlib.sha256()
        self._file = open(path, "xb")  # noqa: SIM115 - closed by finish()

    def write(self, text: memoryview, rows: int) -> None:
        self._put(self._compressor.compress(text))
        self.rows += rows

    def finish(self) -> Shard:
        self._put(self._compressor.flush())
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        return Shard(self._path.name, self.rows, self._bytes, self._digest.hexdigest())

    def close(self) -> None:
        self._file.close()

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self._bytes += len(data)


class SplitWriter:
    """Cuts a stream of rows into shards of `shard_rows` rows each."""

    def __init__(
        self, directory: Path, name: str, shard_rows: int, compression: Compression
    ) -> None:
        self._directory = directory
        self._name = name
        self._shard_rows = shard_rows
        self._compression = compression
        self._current: _ShardFile | None = None
        self._shards: list[Shard] = []

    def write(self, text: memoryview, rows: int) -> None:
        """Append rows of MultiSlot text."""
        rest = text
        ends: npt.NDArray[np.intp] | None = None
        done = 0
        while done < rows:
            shard = self._current or self._open()
            count = min(rows - done, self._shard_rows - shard.rows)
            if done + count < rows:
                if ends is None:
                    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
                cut = int(ends[done + count - 1]) - (len(text) - len(rest))
            else:
                cut = len(rest)
            shard.write(rest[:cut], count)
            rest = rest[cut:]
            done += count
            if shard.rows == self._shard_rows:
                self._finish_shard(shard)

    def finish(self) -> Split:
        """Close the last shard; returns what was written."""
        if self._current:
            self._finish_shard(self._current)
        return Split(sum(shard.rows for shard in self._shards), tuple(self._shards))

    def close(self) -> None:
        """Give up."""
        if self._current:
            self._current.close()

    def _open(self) -> _ShardFile:
        name = f"{self._name}-{len(self._shards):05d}.txt{_SUFFIX[self._compression]}"
        self._current = _ShardFile(self._directory / name, self._compression)
        return self._current

    def _finish_shard(self, shard: _ShardFile) -> None:
        self._shards.append(shard.finish())
        self._current = None


class DatasetWriter:
    """Collects the splits of one data set; made by `writing`."""

    def __init__(
        self,
        directory: Path,
        columns: tuple[Column, ...],
        shard_rows: int,
        compression: Compression,
    ) -> None:
        self.distinct = DistinctCounter()
        self._directory = directory
        self._columns = columns
        self._splits = {
            name: SplitWriter(directory, name, shard_rows, compression)
            for name in ("train", "test")
        }

    def write(self, split: str, text: memoryview, rows: int) -> None:
        """Append rows of MultiSlot text to a split."""
        self._splits[split].write(text, rows)

    def finish(self, source: Mapping[str, Any]) -> Dataset:
        """Write dataset.json; a split without rows is left out."""
        splits = {name: writer.finish() for name, writer in self._splits.items()}
        dataset = Dataset(
            self._directory,
            self._columns,
            {name: split for name, split in splits.items() if split.rows},
            self.distinct.estimate(),
            source,
        )
        with open(self._directory / DATASET_FILE, "x", encoding="utf-8") as file:
            file.write(dataset.to_json())
            file.flush()
            os.fsync(file.fileno())
        return dataset

    def close(self) -> None:
        """Give up."""
        for writer in self._splits.values():
            writer.close()


@contextmanager
def writing(
    path: Path,
    columns: tuple[Column, ...],
    *,
    shard_rows: int = SHARD_ROWS,
    compression: Compression = "zstd",
) -> Iterator[DatasetWriter]:
    """Write a data set all or nothing: `path` appears when the block ends without an error."""
    path = path.absolute()
    check_free(path)
    staging = path.parent / f".{path.name}.partial-{os.getpid()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir()
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
    writer = DatasetWriter(staging, columns, shard_rows, compression)
    try:
        yield writer
        _publish(staging, path)
    except OSError as error:
        raise UserError(f"{path}: writing failed: {error.strerror or error}") from error
    finally:
        writer.close()
        shutil.rmtree(staging, ignore_errors=True)


def check_free(path: Path) -> None:
    """Refuse to overwrite anything, before the work is done."""
    if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        raise UserError(f"{path}: exists already; remove it or choose another output directory")
    for left in path.parent.glob(f".{path.name}.partial-*"):
        log.warning("%s: is left from a conversion that was killed; it can be removed", left)


def _publish(staging: Path, path: Path) -> None:
    os.rename(staging, path)
    for directory in (path, path.parent):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
