"""What a conversion should give, computed again in plain Python, value by value."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fleetps.data.dataset import Dataset
from fleetps.data.pipe import read_blocks

_MASK = (1 << 64) - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5

NUMBERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _round(accumulator: int, lane: int) -> int:
    return _rotate((accumulator + lane * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64, from its specification."""
    position = 0
    if len(data) >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while position + 32 <= len(data):
            words = struct.unpack_from("<4Q", data, position)
            lanes = [_round(lane & _MASK, word) for lane, word in zip(lanes, words, strict=True)]
            position += 32
        result = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            result = ((result ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        result = (seed + _P5) & _MASK
    result = (result + len(data)) & _MASK
    while position + 8 <= len(data):
        (word,) = struct.unpack_from("<Q", data, position)
        result = (_rotate(result ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        position += 8
    if position + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, position)
        result = (_rotate(result ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in data[position:]:
        result = _rotate(result ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    result = (result ^ (result >> 33)) * _P2 & _MASK
    result = (result ^ (result >> 29)) * _P3 & _MASK
    return result ^ (result >> 32)


def id_of(value: str, slot: str) -> int:
    return xxh64(value.encode(), xxh64(slot.encode())) >> 2


def dense_of(text: str) -> float:
    if not text:
        return 0.0
    number = float(text)
    return float(f"{math.copysign(math.log1p(abs(number)), number):.6g}")


def bucket_of(text: str) -> str:
    if not text:
        return ""
    number = float(text)
    return f"log{math.floor(math.log(number) ** 2)}" if number > 2 else str(math.floor(number))


Row = tuple[int, list[float], list[int]]


def criteo_rows(lines: Sequence[str], *, bucketize: bool = False) -> list[Row]:
    """The rows that lines of a Criteo file become."""
    rows = []
    for line in lines:
        label, *values = line.split("\t")
        numbers, categories = values[:13], values[13:]
        dense = [dense_of(text) for text in numbers] + [float(not text) for text in numbers]
        ids = [id_of(value, slot) for value, slot in zip(categories, CATEGORIES, strict=True)]
        if bucketize:
            ids += [id_of(bucket_of(t), slot) for t, slot in zip(numbers, NUMBERS, strict=True)]
        rows.append((int(label), dense, ids))
    return rows


def with_rare_ids(rows: list[Row], train: list[Row], least: int, slots: Sequence[str]) -> list[Row]:
    """The same rows with the values that are rarer than `least` in `train` made one per slot."""
    counts = [Counter(ids) for ids in zip(*(row[2] for row in train), strict=True)]
    rare = [id_of("\0rare", slot) for slot in slots]
    return [
        (label, dense, [i if counts[k][i] >= least else rare[k] for k, i in enumerate(ids)])
        for label, dense, ids in rows
    ]


def criteo_lines(count: int, seed: int = 1) -> list[str]:
    """Criteo-like lines: repeated and unique categories, missing values, negative numbers."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        values = [str(draw.randint(0, 1))]
        for _ in range(13):
            number = int(math.exp(draw.gauss(2, 2))) - 3
            values.append("" if draw.random() < 0.2 else str(number))
        for column in range(26):
            size = 10 ** draw.randint(0, 8) if column % 2 else 20
            text = f"{draw.randrange(size) * 2654435761 % 2**32:08x}"
            values.append("" if draw.random() < 0.1 else text)
        lines.append("\t".join(values))
    return lines


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def read_text(dataset: Dataset, split: str) -> bytes:
    """The text of all shards of a split."""
    shards = dataset.splits[split].shards if split in dataset.splits else ()
    return b"".join(block for s in shards for block in read_blocks(dataset.shard_path(s)))


def read_rows(dataset: Dataset, split: str) -> list[dict[str, list[float]]]:
    """All rows of a split, by column, without any check."""
    rows = []
    for line in read_text(dataset, split).decode().splitlines():
        tokens = iter(line.split(" "))
        row: dict[str, list[float]] = {}
        for column in dataset.columns:
            kind = int if column.kind == "sparse" else float
            row[column.name] = [kind(next(tokens)) for _ in range(int(next(tokens)))]
        assert next(tokens, None) is None
        rows.append(row)
    return rows


def as_tuples(dataset: Dataset, split: str) -> list[Row]:
    return [
        (int(row["label"][0]), row["dense"], [int(i) for i in row["ids"]])
        for row in read_rows(dataset, split)
    ]
