"""Shards, memory per row, and the CPU setting."""

from __future__ import annotations

import pytest

from fleet_config.cpu import cpu_fields, mkl_setting
from fleet_config.tables import (
    MAX_LOCAL_ROWS,
    AdagradRule,
    AdamRule,
    NaiveRule,
    SharedAdamRule,
    StdAdagradRule,
    Table,
    bytes_per_row,
    local_bytes,
    local_rows,
    table_shards,
)


@pytest.mark.parametrize(
    ("servers", "cores", "shards"),
    [(1, 1, 4), (1, 4, 4), (2, 2, 4), (2, 4, 8), (3, 4, 12), (5, 4, 20), (1, 64, 8), (6, 1, 12)],
)
def test_table_shards(servers: int, cores: int, shards: int) -> None:
    assert table_shards(servers, cores) == shards


@pytest.mark.parametrize("servers", range(1, 40))
def test_every_server_owns_as_many_shards(servers: int) -> None:
    for cores in (1, 2, 7, 100):
        shards = table_shards(servers, cores)
        assert shards % servers == 0
        assert shards >= servers * min(cores, 8)


@pytest.mark.parametrize(
    ("rule", "measured"),
    [
        (NaiveRule(), {16: 200, 64: 439}),
        (AdagradRule(), {17: 227}),
        (StdAdagradRule(), {16: 257, 64: 655}),
        (SharedAdamRule(), {16: 235, 64: 435}),
        (AdamRule(), {17: 363, 64: 972}),
    ],
)
def test_bytes_per_row_are_near_the_measured_ones(rule, measured: dict[int, int]) -> None:
    for dim, size in measured.items():
        assert bytes_per_row(dim, rule) == pytest.approx(size, rel=0.1)


def test_local_rows_and_their_memory() -> None:
    assert local_rows(1) == 1 << 12
    assert local_rows(1_000) == 1 << 14  # the next power of two to 16 rows per id
    assert local_rows(10**9) == MAX_LOCAL_ROWS
    rules = (NaiveRule(), AdagradRule(), StdAdagradRule(), SharedAdamRule(), AdamRule())
    floats = [8, 8 + 2, 8 + 8, 8 + 6, 8 + 2 * 8 + 2]
    sizes = [local_bytes(Table(dim=8, rule=rule), 1000) for rule in rules]
    assert sizes == [4000 * count for count in floats]


def cpuinfo(vendor: str, flags: str) -> str:
    return f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n\nprocessor\t: 1\n"


AVX2 = "fpu avx avx2 fma"
AVX512 = f"{AVX2} avx512f avx512dq avx512bw avx512vl"


@pytest.mark.parametrize(
    ("vendor", "flags", "setting"),
    [
        ("AuthenticAMD", AVX512, "7"),
        ("AuthenticAMD", AVX2, "5"),
        ("AuthenticAMD", f"{AVX2} avx512f", "5"),
        ("AuthenticAMD", "fpu avx", None),
        ("AuthenticAMD", "fpu avx avx2", None),
        ("GenuineIntel", AVX512, None),
    ],
)
def test_mkl_setting(vendor: str, flags: str, setting: str | None) -> None:
    assert mkl_setting(cpuinfo(vendor, flags)) == setting


def test_no_cpuinfo_no_setting() -> None:
    assert mkl_setting("") is None
    assert cpu_fields("nonsense") == {"nonsense": ""}
