"""Raw input: which files are read, and text files as blocks of whole lines."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_config.errors import UserError
from fleetps.data.pipe import Advance, DamagedFile, read_blocks

log = logging.getLogger(__name__)

BLOCK_BYTES = 8 << 20
_LONGEST_LINE = 64 << 20


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of one file."""

    file: Path
    first_line: int  # in the file, from 1
    first_row: int  # in the whole input, from 0; bad rows count
    lines: int
    text: bytes


def list_inputs(paths: Sequence[Path]) -> list[Path]:
    """Return the files to read, in order; a directory stands for its visible files by name."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += _files_in(path)
        elif path.is_file():
            files.append(path)
        elif path.exists():
            raise UserError(f"{path}: is not a regular file; a pipe or device can't be converted")
        else:
            raise UserError(f"{path}: does not exist")
    for file in files:
        if not file.stat().st_size:
            raise UserError(f"{file}: is empty; remove it or fetch it again")
    return files


def _files_in(directory: Path) -> list[Path]:
    files = []
    for path in sorted(directory.iterdir()):
        if path.name.startswith((".", "_")):
            log.warning("%s: hidden, so it is skipped", path)
        elif path.is_dir():
            log.warning("%s: a directory inside an input directory is skipped", path)
        else:
            files.append(path)
    if not files:
        raise UserError(f"{directory}: holds no files to convert")
    return files


def head_line(file: Path) -> bytes:
    """Return the first line of a file, without its end."""
    head = b""
    try:
        for block in read_blocks(file):
            head += block
            if b"\n" in block or len(head) > _LONGEST_LINE:
                break
    except DamagedFile as error:
        raise UserError(str(error)) from error
    return head.split(b"\n", 1)[0].rstrip(b"\r")


def line_blocks(files: Sequence[Path], skip_header: bool, advance: Advance) -> Iterator[LineBlock]:
    """Yield the lines of text files, which may be compressed, in blocks of bounded size."""
    row = 0
    for file in files:
        line = 1
        for text in _whole_lines(file, advance):
            first_line, line = line, line + text.count(b"\n")
            if skip_header and first_line == 1:
                first_line, text = 2, text[text.index(b"\n") + 1 :]  # noqa: PLW2901
            lines = line - first_line
            if lines:
                yield LineBlock(file, first_line, row, lines, text)
                row += lines


def _whole_lines(file: Path, advance: Advance) -> Iterator[bytes]:
    parts: list[bytes] = []
    size = 0
    try:
        for block in read_blocks(file, advance):
            parts.append(block)
            size += len(block)
            if size < BLOCK_BYTES:
                continue
            text = b"".join(parts)
            end = text.rfind(b"\n") + 1
            if end:
                yield text[:end]
            elif size > _LONGEST_LINE:
                raise UserError(f"{file}: has a line of over 64 MB, so it isn't a text file")
            parts, size = [text[end:]], len(text) - end
    except DamagedFile as error:
        raise UserError(str(error)) from error
    rest = b"".join(parts)
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"
