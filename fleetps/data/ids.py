"""The id of a categorical value: one documented, stable 64-bit hash of value and slot.

    id = XXH64(value, seed = XXH64(slot, seed = 0)) >> 2            (in [0, 2^62))

`value` is the text of the value as it stands in the data (an integer is its decimal digits),
`slot` the name of its slot, both in UTF-8. A missing value is the empty text, so each slot has
an ordinary id for it. XXH64 exists in every language, so a serving system can compute the same
ids. They may never change: models on disk depend on them (tests/unit/test_data_ids.py).
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

UInt64s = npt.NDArray[np.uint64]

ID_BITS = 62
_SHIFT = np.uint64(64 - ID_BITS)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
# From 32 bytes on XXH64 works in stripes; such long values are rare and left to the library.
_SHORT = 32


def id_of(value: str, slot: str) -> int:
    """Return the id of one value: the reference for `hash_ids`, and for serving systems."""
    return int(xxhash.xxh64_intdigest(value.encode(), _slot_seed(slot))) >> (64 - ID_BITS)


def hash_ids(values: pa.Array, slot: str) -> npt.NDArray[np.int64]:
    """Return the ids of an array of strings or binary values; null is the empty string."""
    values = pc.fill_null(values.cast(pa.large_binary()), b"")
    seed = _slot_seed(slot)
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    result = np.empty(len(values), np.uint64)
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(values), values.offset * 8)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length)
        if length < _SHORT:
            text = data[offsets[chosen, None] + np.arange(length)]
            result[chosen] = _xxh64_short(text, seed)
        else:
            result[chosen] = [xxhash.xxh64_intdigest(values[int(i)].as_py(), seed) for i in chosen]
    return (result >> _SHIFT).astype(np.int64)


def _slot_seed(slot: str) -> int:
    return int(xxhash.xxh64_intdigest(slot.encode(), 0))


def _rotate(values: UInt64s, bits: int) -> UInt64s:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _xxh64_short(text: npt.NDArray[np.uint8], seed: int) -> UInt64s:
    """XXH64 of each row of a matrix of bytes with fewer than 32 columns."""
    rows, length = text.shape
    with np.errstate(over="ignore"):
        start = np.uint64(seed) + _P5 + np.uint64(length)
        hashed = np.full(rows, start, np.uint64)
        words, rest = divmod(length, 8)
        for i in range(words):
            word = np.ascontiguousarray(text[:, 8 * i : 8 * i + 8]).view("<u8")[:, 0]
            hashed ^= _rotate(word * _P2, 31) * _P1
            hashed = _rotate(hashed, 27) * _P1 + _P4
        position = 8 * words
        if rest >= 4:
            half = np.ascontiguousarray(text[:, position : position + 4]).view("<u4")[:, 0]
            hashed ^= half.astype(np.uint64) * _P1
            hashed = _rotate(hashed, 23) * _P2 + _P3
            position += 4
        for i in range(position, length):
            hashed ^= text[:, i].astype(np.uint64) * _P5
            hashed = _rotate(hashed, 11) * _P1
        hashed ^= hashed >> np.uint64(33)
        hashed *= _P2
        hashed ^= hashed >> np.uint64(29)
        hashed *= _P3
        hashed ^= hashed >> np.uint64(32)
    return hashed
