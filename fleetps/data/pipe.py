"""The pipe command of Paddle's C++ data set: writes a slice of one shard to standard output.

Run as ``python -I pipe.py`` with a slice on standard input::

    {"shard": "/data/train-00000.txt.zst", "start": 0, "rows": 5000, "report": "/run/0.report",
     "shuffle_seed": 7, "skip": 0, "stop": 5000, "append": ""}

Without shuffle_seed (or null) the rows keep their order. In their order those from `skip` to before
`stop` are written, all if these are not given. `append` is text to follow them.

It stands alone (a process per slice: only what is needed is imported) and works on large blocks,
never row by row. Paddle ignores the exit status of a pipe command and takes what arrived for the
whole file, so the outcome is written to the report file: ``{"rows": 5000}``, or
``{"error": "one sentence", "damaged": true}``, where damaged says that another try can't help. Only
whole lines are ever written: Paddle aborts on a part of one.
"""

import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

Advance = Callable[[int], None] | None

READ_BYTES = 1 << 18
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
GZIP_MAGIC = b"\x1f\x8b"


class DamagedFile(Exception):
    """A file which can't be read to its end; one sentence that names it."""


class UnreadableFile(DamagedFile):
    """The operating system can't read it here and now; what is in it may be right."""


def read_blocks(path: str | Path, advance: Advance = None) -> Iterator[bytes]:
    """Yield the text of a plain, gzip or zstd file (told by its first bytes) in blocks.

    `advance(n)` is called with the number of bytes just read from the file, for progress bars.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            head = file.read(READ_BYTES)
            if head.startswith(GZIP_MAGIC):
                yield from _decompress(path, file, head, "gzip", advance)
            elif head.startswith(ZSTD_MAGIC):
                yield from _decompress(path, file, head, "zstd", advance)
            else:
                yield from _chunks(file, head, advance)
    except OSError as error:
        raise UnreadableFile(f"{path}: cannot be read: {error.strerror or error}") from error


def _chunks(file: BinaryIO, chunk: bytes, advance: Advance) -> Iterator[bytes]:
    while chunk:
        if advance is not None:
            advance(len(chunk))
        yield chunk
        chunk = file.read(READ_BYTES)


def _decompressor(kind: str) -> Any:
    if kind == "gzip":
        return zlib.decompressobj(wbits=31)
    import zstandard  # noqa: PLC0415  (10 ms, and only where it is needed)

    return zstandard.ZstdDecompressor().decompressobj()


def _decompress(
    path: str | Path, file: BinaryIO, head: bytes, kind: str, advance: Advance
) -> Iterator[bytes]:
    """Both formats may consist of several frames, one after the other."""
    frame = _decompressor(kind)
    for chunk in _chunks(file, head, advance):
        data = chunk
        while data:
            if frame.eof:
                frame = _decompressor(kind)
            try:
                text = frame.decompress(data)
            except Exception as error:  # zlib.error or zstandard.ZstdError
                raise DamagedFile(f"{path}: is damaged ({kind}: {error})") from error
            data = frame.unused_data if frame.eof else b""
            if text:
                yield text
    if not frame.eof:
        raise DamagedFile(f"{path}: is truncated: the {kind} stream ends too early")


def cut(text: bytes, lines: int) -> int:
    """Return the offset just behind the first `lines` lines of `text`, which has that many."""
    offset = 0
    for _ in range(lines):
        offset = text.index(b"\n", offset) + 1
    return offset


def slice_rows(path: str | Path, start: int, rows: int) -> Iterator[tuple[int, bytes]]:
    """Yield (row count, whole lines) of the rows start .. start + rows of a shard."""
    if start < 0 or rows < 0:
        raise DamagedFile(f"{path}: rows {start} + {rows} are not a slice")
    skip, wanted, carry = start, rows, b""
    if not wanted:
        return
    for whole_block in read_blocks(path):
        count = whole_block.count(b"\n")
        if count < skip:
            skip -= count
            continue
        block = whole_block[cut(whole_block, skip) :]
        count -= skip
        skip = 0
        if count >= wanted:
            yield wanted, carry + block[: cut(block, wanted)]
            return
        end = block.rfind(b"\n") + 1
        if end:
            yield count, carry + block[:end]
            carry = block[end:]
        else:
            carry += block
        wanted -= count
    raise DamagedFile(
        f"{path}: has {start - skip + rows - wanted} rows, "
        f"but rows {start} to {start + rows} were asked for"
    )


def shuffled(blocks: Iterator[tuple[int, bytes]], seed: int) -> Iterator[tuple[int, bytes]]:
    """The rows of a slice in an order that follows from the seed (Paddle's shuffle takes none)."""
    import random  # noqa: PLC0415

    lines = b"".join(text for _, text in blocks).splitlines(keepends=True)
    random.Random(seed).shuffle(lines)  # noqa: S311
    yield len(lines), b"".join(lines)


def between(
    blocks: Iterator[tuple[int, bytes]], skip: int, stop: int
) -> Iterator[tuple[int, bytes]]:
    """The rows from `skip` to before `stop` of what comes."""
    at = 0
    for count, text in blocks:
        first, last = max(skip - at, 0), min(stop - at, count)
        if (first, last) == (0, count):
            yield count, text
        elif first < last:
            yield last - first, text[cut(text, first) : cut(text, last)]
        at += count
        if at >= stop:
            return


def write_report(path: str, report: dict[str, Any]) -> None:
    """The worker polls for this file, so it must appear complete."""
    partial = f"{path}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(report, file)
    os.replace(partial, path)


def run(source: BinaryIO, sink: BinaryIO) -> int:
    """Serve one slice; returns the exit code."""
    try:
        job = json.loads(source.read())
        shard, start, rows, report = job["shard"], job["start"], job["rows"], job["report"]
        seed, more = job.get("shuffle_seed"), job.get("append", "")
        skip, stop = job.get("skip", 0), job.get("stop")
    except (ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"pipe: the slice on standard input is not understood: {error!r}\n")
        return 2
    sent = 0
    outcome: dict[str, Any]
    try:
        blocks = slice_rows(shard, start, rows)
        try:
            ordered = blocks if seed is None else shuffled(blocks, seed)
            for count, text in between(ordered, skip, rows if stop is None else stop):
                sink.write(text)
                sent += count
            sink.write(more.encode())
        finally:
            sink.flush()  # before an error too: what is buffered may end within a line
        outcome = {"rows": sent}
    except DamagedFile as error:
        outcome = {"error": str(error), "damaged": not isinstance(error, UnreadableFile)}
    except BrokenPipeError:
        outcome = {"error": f"{shard}: the reader went away after {sent} rows"}
    except Exception as error:  # the report is the only way to be heard
        outcome = {"error": f"{shard}: reading failed: {error!r}"}
    write_report(report, outcome)
    return 0 if "rows" in outcome else 2


if __name__ == "__main__":
    # Flushed already; a normal exit would complain about a pipe that the reader has closed.
    os._exit(run(sys.stdin.buffer, sys.stdout.buffer))
