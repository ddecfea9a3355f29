"""CSV, TSV and Criteo files, parsed by Arrow in blocks of lines."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from fleet_config.errors import UserError
from fleet_config.explain import nearest
from fleetps.data.badrows import BadRows
from fleetps.data.inputs import LineBlock, head_line, line_blocks
from fleetps.data.pipe import Advance
from fleetps.data.schema import Schema
from fleetps.data.source import Parsed, describe, first_bad_column

# Dictionary-encoded: a value is hashed and written once per block, however often it occurs.
_TEXT = pa.dictionary(pa.int32(), pa.binary())
# What Arrow takes for a number; the others are found by this when it refuses a block.
_NUMBER = re.compile(rb"[ \t]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*")


class TextSource:
    """Text files of one schema, plain or compressed."""

    def __init__(self, files: Sequence[Path], schema: Schema) -> None:
        self.schema = schema
        self.bytes = sum(file.stat().st_size for file in files)
        self._files = files
        self._names = self._header() if schema.header else schema.columns
        for name in schema.used:
            if name not in self._names:
                match = nearest(name, self._names)
                hint = f"; did you mean {match}?" if match else ""
                where = f"the header of {files[0]}" if schema.header else "columns"
                raise UserError(f"the schema's column {name} is not in {where}{hint}")
        self._numbers = [schema.label, *schema.dense]
        self._whole_line = _whole_line(schema.separator)

    def count_rows(self, advance: Advance) -> int:
        """Count all lines but headers."""
        return sum(b.lines for b in line_blocks(self._files, self.schema.header, advance))

    def blocks(self, advance: Advance) -> Iterator[Callable[[], Parsed]]:
        """Read the lines; each block is parsed when called."""
        for block in line_blocks(self._files, self.schema.header, advance):
            yield partial(self._parse, block)

    def _header(self) -> list[str]:
        first, *others = self._files
        head = head_line(first)
        for file in others:
            if head_line(file) != head:
                raise UserError(f"{file}: its header is not the same as that of {first}")
        names = self._fields(head.removeprefix(b"\xef\xbb\xbf"))
        twice = {name for name in names if names.count(name) > 1}
        if twice & set(self.schema.used):
            raise UserError(f"{first}:1: the header names column {min(twice)} twice")
        return names

    def _fields(self, line: bytes) -> list[str]:
        text = line.rstrip(b"\r").decode("utf-8", "replace")
        if self.schema.quoted:
            return next(csv.reader([text], delimiter=self.schema.separator), [])
        return text.split(self.schema.separator)

    def _parse(self, block: LineBlock) -> Parsed:
        kept = np.arange(block.lines)
        reasons: dict[int, str] = {}
        lines: list[bytes] = []
        columns = self._read_all(block)
        if columns is None:
            lines = block.text.split(b"\n")[:-1]
            reasons = self._unreadable(lines)
            kept = np.delete(kept, list(reasons))
            columns = self._read_doubtful(block, [lines[i] for i in kept])
        bad = first_bad_column(
            self.schema.label,
            columns[self.schema.label],
            {name: columns[name] for name in self.schema.dense},
        )
        if bad and not lines:
            lines = block.text.split(b"\n")
        for position, name in bad.items():
            reasons[int(kept[position])] = self._reason(lines[kept[position]], name)
        good = np.ones(len(kept), np.bool_)
        good[list(bad)] = False
        return self._collect(block, columns, kept, reasons, lines).only(good)

    def _reason(self, line: bytes, column: str) -> str:
        if not line.strip():
            return "the line is empty"
        value = self._fields(line)[self._names.index(column)]
        return describe(self.schema.label, column, value)

    def _collect(
        self,
        block: LineBlock,
        columns: Mapping[str, pa.Array],
        kept: npt.NDArray[np.int64],
        reasons: Mapping[int, str],
        lines: Sequence[bytes],
    ) -> Parsed:
        bad = BadRows()
        for index in sorted(reasons):
            where = f"{block.file}:{block.first_line + index}"
            bad.add(where, reasons[index], lines[index].decode("utf-8", "replace"))
        labels = columns[self.schema.label].fill_null(0).to_numpy(zero_copy_only=False) == 1
        return Parsed(labels.astype(np.int8), columns, kept + block.first_row, block.lines, bad)

    def _read_all(self, block: LineBlock) -> dict[str, pa.Array] | None:
        """Parse a block; None if Arrow doesn't see each line as a row of the right kind."""
        if block.text.count(b"\r") != block.text.count(b"\r\n"):
            return None
        try:
            columns = self._read(block.text, pa.float64())
        except pa.ArrowInvalid:
            return None
        return columns if len(columns[self.schema.label]) == block.lines else None

    def _unreadable(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Find the lines that are not rows with all columns."""
        reasons: dict[int, str] = {}
        for index, line in enumerate(lines):
            if b"\r" in line.removesuffix(b"\r"):
                reasons[index] = "has a carriage return inside"
            elif self.schema.quoted and not self._whole_line.fullmatch(line):
                reasons[index] = "has a quote that is not closed on the same line"
            elif not line.strip():
                reasons[index] = "the line is empty"
            elif (width := self._width(line)) != len(self._names):
                reasons[index] = f"has {width} columns, not {len(self._names)}"
        return reasons

    def _width(self, line: bytes) -> int:
        if self.schema.quoted and b'"' in line:
            return len(self._fields(line))
        return line.count(self.schema.separator.encode()) + 1

    def _read_doubtful(self, block: LineBlock, lines: Sequence[bytes]) -> dict[str, pa.Array]:
        """Parse lines of the right width; what is not a number becomes NaN."""
        text = b"".join(line + b"\n" for line in lines)
        try:
            columns = self._read(text, pa.binary())
        except pa.ArrowInvalid as error:
            last = block.first_line + block.lines - 1
            raise UserError(
                f"{block.file}: lines {block.first_line} to {last} can't be parsed: {error}"
            ) from error
        for name in self._numbers:
            columns[name] = _numbers(columns[name])
        return columns

    def _read(self, text: bytes, number: pa.DataType) -> dict[str, pa.Array]:
        schema = self.schema
        types = dict.fromkeys([*schema.categorical, *schema.multi_valued], _TEXT)
        types |= dict.fromkeys(self._numbers, number)
        if not text:
            return {name: pa.array([], kind) for name, kind in types.items()}
        table = pa_csv.read_csv(
            pa.py_buffer(text),
            pa_csv.ReadOptions(
                column_names=self._names, use_threads=False, block_size=len(text) + 1
            ),
            pa_csv.ParseOptions(
                delimiter=schema.separator,
                quote_char='"' if schema.quoted else False,
                ignore_empty_lines=False,
            ),
            pa_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=["", *schema.missing],
                strings_can_be_null=True,
                check_utf8=False,
            ),
        )
        return {name: table[name].combine_chunks() for name in types}


def _numbers(texts: pa.Array) -> pa.Array:
    """Return doubles; what is not a number becomes NaN, which is refused like any other."""
    return pa.array(
        [
            None if text is None else float(text) if _NUMBER.fullmatch(text) else float("nan")
            for text in texts.to_pylist()
        ],
        pa.float64(),
        from_pandas=False,
    )


def _whole_line(separator: str) -> re.Pattern[bytes]:
    """A line in which each quoted value is closed, by Arrow's rules."""
    quoted = rb'"(?:[^"]|"")*"(?!")'
    rest = rb"[^%b]*" % re.escape(separator.encode())
    value = rb'(?:%b%b|(?!")%b)' % (quoted, rest, rest)
    return re.compile(rb"%b(?:%b%b)*" % (value, re.escape(separator.encode()), value))
