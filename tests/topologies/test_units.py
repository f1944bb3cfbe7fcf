"""Quantities: text to integer and back, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import units

PAIRS: list[tuple[Callable[[object], int], Callable[[int], str]]] = [
    (units.parse_rate_bps, units.format_rate),
    (units.parse_time_ns, units.format_time),
    (units.parse_size_bytes, units.format_size),
    (units.parse_flops_per_s, units.format_flops),
    (units.parse_bytes_per_s, units.format_bandwidth),
]


@pytest.mark.parametrize(("parse", "write"), PAIRS)
@given(value=st.one_of(st.integers(0, 10**16), st.integers(0, 10**4).map(lambda n: n * 2**20)))
def test_canonical_text_is_exact(
    parse: Callable[[object], int], write: Callable[[int], str], value: int
) -> None:
    text = write(value)
    assert parse(text) == value
    assert write(parse(text)) == text


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_rate_bps, "100Gbps", 100_000_000_000),
        (units.parse_rate_bps, "1.6Tbps", 1_600_000_000_000),
        (units.parse_rate_bps, "10 Mbit/s", 10_000_000),
        (units.parse_rate_bps, "10gbit", 10_000_000_000),
        (units.parse_rate_bps, "10GB/s", 80_000_000_000),
        (units.parse_rate_bps, "400Gb/s", 400_000_000_000),
        (units.parse_time_ns, "500usec", 500_000),
        (units.parse_time_ns, "2msecs", 2_000_000),
        (units.parse_time_ns, "500ns", 500),
        (units.parse_time_ns, "2.5ms", 2_500_000),
        (units.parse_time_ns, "0.001us", 1),
        (units.parse_size_bytes, "8MB", 8_000_000),
        (units.parse_size_bytes, "8MiB", 8_388_608),
        (units.parse_size_bytes, 9000, 9000),
        (units.parse_size_bytes, "1.5KB", 1500),
        (units.parse_flops_per_s, "60TFLOPS", 60 * 10**12),
        (units.parse_bytes_per_s, "900GB/s", 900 * 10**9),
    ],
)
def test_known_values(parse: Callable[[object], int], text: object, value: int) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (units.parse_rate_bps, 100),
        (units.parse_rate_bps, "100"),
        (units.parse_rate_bps, "100GBps"),
        (units.parse_rate_bps, "-1Gbps"),
        (units.parse_rate_bps, "fast"),
        (units.parse_time_ns, 5),
        (units.parse_time_ns, "0.5ns"),
        (units.parse_time_ns, "5min"),
        (units.parse_time_ns, True),
        (units.parse_size_bytes, "8Mb"),
        (units.parse_size_bytes, "0.5B"),
        (units.parse_size_bytes, -1),
        (units.parse_size_bytes, 1.5),
        (units.parse_size_bytes, None),
        (units.parse_flops_per_s, "60TB"),
        (units.parse_bytes_per_s, "900Gbps"),
    ],
)
def test_what_is_not_a_quantity_is_refused_with_an_example(
    parse: Callable[[object], int], text: object
) -> None:
    with pytest.raises(ValueError, match=r"expected a.* such as "):
        parse(text)


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    for parse, _ in PAIRS:
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert "expected" in str(error)


@pytest.mark.parametrize(
    ("parse", "text", "hint"),
    [
        (units.parse_rate_bps, "1.25GBps", "write 1.25GB/s, or 1.25Gbps for bits; "),
        (units.parse_rate_bps, "10gbps", "write 10Gbps, or 10GB/s for bytes, as tc's gbps; "),
        (units.parse_rate_bps, "10GBPS", "write 10Gbps; "),
        (units.parse_size_bytes, "64kb", "write 64kB, or 64KiB for tc's kb; "),
        (units.parse_size_bytes, "1mib", "write 1MiB; "),
        (units.parse_time_ns, "5US", "write 5us; "),
    ],
)
def test_a_unit_in_other_letters_is_answered_with_the_right_spelling(
    parse: Callable[[object], int], text: str, hint: str
) -> None:
    with pytest.raises(ValueError, match=hint):
        parse(text)
