"""Congestion control of Soft-RoCE's devices: they are told their settings, and report rates.

`topologies/spec/transports/roce/device.py` has the settings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_DEVICES = Path("/sys/class/infiniband")


def configure(device: str, settings: Mapping[str, int]) -> None:
    """Tells a device; it holds for queue pairs that are made from now on. A kernel of Linux's own
    has nothing to tell, and is refused other settings than its own (emulator/native/kernel.py).
    Raises OSError."""
    file = _DEVICES / device / "congestion"
    if file.exists():
        file.write_text(" ".join(f"{name}={value}" for name, value in settings.items()) + "\n")


@dataclass(frozen=True, slots=True)
class RateSample:
    """The rate of a queue pair from `time_ns` (CLOCK_MONOTONIC) on, as it was when it sent."""

    time_ns: int
    qpn: int
    rate_bps: int


_SAMPLE = struct.Struct("=QQII")


def read_rates(device: str) -> Iterator[RateSample]:
    """The samples of a device's queue pairs, in order of time; none where a kernel keeps none.
    Raises OSError."""
    if not (_DEVICES / device / "rates").exists():
        return
    for time_ns, rate_bps, qpn, _ in _SAMPLE.iter_unpack(
        (_DEVICES / device / "rates").read_bytes()
    ):
        yield RateSample(time_ns, qpn, rate_bps)


def samples_lost(device: str) -> int:
    """How many samples a device had no room for. Raises OSError."""
    if not (_DEVICES / device / "congestion").exists():
        return 0
    text = (_DEVICES / device / "congestion").read_text()
    return int(dict(line.split("=") for line in text.splitlines())["samples_lost"])
