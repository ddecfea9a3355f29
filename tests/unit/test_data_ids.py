"""Ids may never change: trained models and serving systems depend on them."""

from __future__ import annotations

import pyarrow as pa
import pytest
import xxhash
from data_reference import id_of as reference_id
from data_reference import xxh64
from hypothesis import given
from hypothesis import strategies as st

from fleetps.data.ids import hash_ids, id_of

# Computed once by the definition in fleetps/data/ids.py; never to be edited.
GOLDEN = [
    ("C1", "68fd1e64", 1650370468828933621),
    ("C2", "68fd1e64", 802647909062860088),
    ("C1", "", 965495380442550923),
    ("I1", "log7", 4036324347488405115),
    ("site_id", "1fbe01fe", 1391325496959546008),
    ("tags", "rot und grün", 2902102435268452030),
    ("C1", "x" * 31, 1867085459252326768),
    ("C1", "x" * 32, 1479049101597222704),
    ("C1", "x" * 100, 3213540904600338147),
    ("C1", "\0rare", 2201608074802539296),
]


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0xEF46DB3751D8E999), (b"abc", 0x44BC2CF5AD770999)]
)
def test_the_reference_is_xxh64(data: bytes, expected: int) -> None:
    assert xxh64(data) == expected == xxhash.xxh64_intdigest(data)


@pytest.mark.parametrize(("slot", "value", "expected"), GOLDEN)
def test_ids_are_what_they_always_were(slot: str, value: str, expected: int) -> None:
    assert id_of(value, slot) == expected
    assert hash_ids(pa.array([value]), slot).tolist() == [expected]
    assert reference_id(value, slot) == expected


@given(st.lists(st.text(max_size=70), max_size=30), st.text(max_size=8))
def test_arrays_hash_like_single_values(values: list[str], slot: str) -> None:
    expected = [reference_id(value, slot) for value in values]
    assert hash_ids(pa.array(values, pa.string()), slot).tolist() == expected
    assert all(0 <= i < 2**62 for i in expected)


def test_slices_and_missing_values() -> None:
    values = pa.array(["a", None, "", "bcd", "e" * 40, None])
    part = values.slice(1, 4)
    expected = [id_of(text, "s") for text in ("", "", "bcd", "e" * 40)]
    assert hash_ids(part, "s").tolist() == expected
    assert hash_ids(part.cast(pa.large_string()), "s").tolist() == expected
    assert hash_ids(pa.nulls(2, pa.binary()), "s").tolist() == [id_of("", "s")] * 2
    assert hash_ids(pa.array([], pa.string()), "s").tolist() == []
