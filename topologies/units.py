"""Quantities as people write them ("100Gbps", "500ns", "8MB") and as the code keeps them.

Rates are bits per second (decimal prefixes), times are nanoseconds, sizes are bytes. Sizes follow
IEC 80000-13: ``8MB`` is 8,000,000 bytes and ``8MiB`` is 8,388,608 bytes. The canonical text of a
value is exact: parsing it gives the same integer back.

Units of tc and iproute2 are taken where they mean one thing only (``10gbit``, ``500usec``). Theirs
that mean another thing here are answered with both: ``10gbps`` is 10 gigabytes a second to tc, and
its ``64kb`` are 65,536 bytes (tc(8), "PARAMETERS").
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_QUANTITY = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z/]*)\s*$")

_RATE_UNITS = {
    f"{prefix}{unit}": factor * bits
    for prefix, factor in (
        *(("", 1), ("k", 10**3), ("K", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12)),
        *(("m", 10**6), ("g", 10**9), ("t", 10**12)),
    )
    for unit, bits in (("bps", 1), ("bit", 1), ("bit/s", 1), ("b/s", 1), ("B/s", 8))
    # Lower-case prefixes are tc's, whose bps are bytes.
    if unit == "bit" or prefix not in ("m", "g", "t")
}
_TIME_UNITS = {
    f"{unit}{ending}": factor
    for unit, factor in (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9))
    for ending in ("", "ec", "ecs")
}
_SIZE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}

_FLOPS_UNITS = {"FLOPS": 1, "GFLOPS": 10**9, "TFLOPS": 10**12, "PFLOPS": 10**15}
_BANDWIDTH_UNITS = {"B/s": 1, "MB/s": 10**6, "GB/s": 10**9, "TB/s": 10**12}

RATE_HELP = "a rate with a unit, such as 10Mbps, 100Gbps or 1.6Tbps"
TIME_HELP = "a time with a unit, such as 500ns, 1us, 2.5ms or 1s (whole nanoseconds)"
SIZE_HELP = "a size such as 9000, 64KB, 8MB (10^6 bytes) or 8MiB (2^20 bytes)"

FLOPS_HELP = "an arithmetic rate with a unit, such as 500GFLOPS or 60TFLOPS"
BANDWIDTH_HELP = "a memory bandwidth with a unit, such as 900GB/s or 3.35TB/s"


def _parse(value: object, units: dict[str, int], what: str, plain: int | None) -> int:
    if isinstance(value, bool):
        raise ValueError(f"expected {what}")
    if isinstance(value, int):
        if value == 0:
            return 0
        if plain is None or value < 0:
            raise ValueError(f"expected {what}")
        return value * plain
    if not isinstance(value, str):
        raise ValueError(f"expected {what}")
    match = _QUANTITY.match(value)
    if match is None:
        raise ValueError(f"expected {what}")
    number, unit = match.groups()
    if unit == "" and (plain is not None or Fraction(number) == 0):
        factor = plain or 1
    elif unit in units:
        factor = units[unit]
    else:
        raise ValueError(f"unknown unit {unit!r}: {_meant(number, unit, units)}expected {what}")
    exact = Fraction(number) * factor
    if exact.denominator != 1:
        raise ValueError(f"{value!r} is not a whole number of the smallest unit: expected {what}")
    return int(exact)


def _meant(number: str, unit: str, units: dict[str, int]) -> str:
    """The right spelling of a unit that differs in its letters' case only; with tc's meaning, where
    that is another."""
    spelled = next((known for known in units if known.casefold() == unit.casefold()), None)
    if spelled is None:
        return ""
    if unit.endswith("Bps"):  # a capital B stands for bytes
        return f"write {number}{spelled.replace('bps', 'B/s')}, or {number}{spelled} for bits; "
    hint = f"write {number}{spelled}"
    if unit.endswith("bps"):
        bytes_spelled = spelled.replace("bps", "B/s")
        hint += f", or {number}{bytes_spelled} for bytes, as tc's {unit}"
    elif unit in ("kb", "mb", "gb"):
        hint += f", or {number}{unit[0].upper()}iB for tc's {unit}"
    return f"{hint}; "


def parse_rate_bps(value: object) -> int:
    """Bits per second of a text such as ``100Gbps``. Raises ValueError; a unit is required."""
    return _parse(value, _RATE_UNITS, RATE_HELP, plain=None)


def parse_time_ns(value: object) -> int:
    """Nanoseconds of a text such as ``500ns``. Raises ValueError; a unit is required."""
    return _parse(value, _TIME_UNITS, TIME_HELP, plain=None)


def parse_signed_time_ns(value: object) -> int:
    """As `parse_time_ns`, of a text that may have a sign: ``-1.5ms``. Raises ValueError."""
    if isinstance(value, str) and value.lstrip()[:1] in ("-", "+"):
        text = value.lstrip()
        time_ns = parse_time_ns(text[1:])
        return -time_ns if text[0] == "-" else time_ns
    return parse_time_ns(value)


def parse_size_bytes(value: object) -> int:
    """Bytes of a text such as ``8MB`` or of a bare number of bytes. Raises ValueError."""
    return _parse(value, _SIZE_UNITS, SIZE_HELP, plain=1)


def parse_flops_per_s(value: object) -> int:
    """Operations per second of a text such as ``60TFLOPS``. Raises ValueError."""
    return _parse(value, _FLOPS_UNITS, FLOPS_HELP, plain=None)


def parse_bytes_per_s(value: object) -> int:
    """Bytes per second of a text such as ``900GB/s``. Raises ValueError."""
    return _parse(value, _BANDWIDTH_UNITS, BANDWIDTH_HELP, plain=None)


def _format(value: int, steps: tuple[tuple[int, str], ...]) -> str:
    """The largest unit in which the value has at most three decimals, so that no digit is lost."""
    for factor, unit in steps:
        if value >= factor and (value * 1000) % factor == 0:
            whole, rest = divmod(value, factor)
            decimals = f"{rest * 1000 // factor:03d}".rstrip("0")
            return f"{whole}.{decimals}{unit}" if decimals else f"{whole}{unit}"
    return f"{value}{steps[-1][1]}"


def format_rate(rate_bps: int) -> str:
    """Canonical text of a rate: ``format_rate(100_000_000_000) == "100Gbps"``."""
    return _format(
        rate_bps,
        ((10**12, "Tbps"), (10**9, "Gbps"), (10**6, "Mbps"), (10**3, "kbps"), (1, "bps")),
    )


def format_time(time_ns: int) -> str:
    """Canonical text of a time: ``format_time(500) == "500ns"``."""
    return _format(time_ns, ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns")))


def format_signed_time(time_ns: int) -> str:
    """Canonical text of a time of either sign: ``format_signed_time(-500) == "-500ns"``."""
    return ("-" if time_ns < 0 else "") + format_time(abs(time_ns))


def format_size(size_bytes: int) -> str:
    """Canonical text of a size; binary units where they are exact and decimal ones are not."""
    if size_bytes >= 1024 and size_bytes % 1000:
        for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if size_bytes % factor == 0:
                return f"{size_bytes // factor}{unit}"
    return _format(size_bytes, ((10**9, "GB"), (10**6, "MB"), (10**3, "KB"), (1, "B")))


def format_flops(flops_per_s: int) -> str:
    """Canonical text of an arithmetic rate: ``format_flops(60 * 10**12) == "60TFLOPS"``."""
    return _format(
        flops_per_s,
        ((10**15, "PFLOPS"), (10**12, "TFLOPS"), (10**9, "GFLOPS"), (1, "FLOPS")),
    )


def format_bandwidth(bytes_per_s: int) -> str:
    """Canonical text of a memory bandwidth: ``format_bandwidth(9 * 10**11) == "900GB/s"``."""
    return _format(bytes_per_s, ((10**12, "TB/s"), (10**9, "GB/s"), (10**6, "MB/s"), (1, "B/s")))


RateBps = Annotated[
    int, BeforeValidator(parse_rate_bps), PlainSerializer(format_rate, return_type=str)
]
TimeNs = Annotated[
    int, BeforeValidator(parse_time_ns), PlainSerializer(format_time, return_type=str)
]
SignedTimeNs = Annotated[
    int,
    BeforeValidator(parse_signed_time_ns),
    PlainSerializer(format_signed_time, return_type=str),
]
SizeBytes = Annotated[
    int, BeforeValidator(parse_size_bytes), PlainSerializer(format_size, return_type=str)
]
FlopsPerSecond = Annotated[
    int, BeforeValidator(parse_flops_per_s), PlainSerializer(format_flops, return_type=str)
]
BytesPerSecond = Annotated[
    int, BeforeValidator(parse_bytes_per_s), PlainSerializer(format_bandwidth, return_type=str)
]


def q32(probability: float) -> int:
    """A probability in 32 bits, as ports and devices take it: 2^32 - 1 stands for 1. Raises
    ValueError."""
    if not 0 <= probability <= 1:
        raise ValueError(f"a probability is from 0 to 1, not {probability}")
    return min(round(probability * 2**32), 2**32 - 1)
