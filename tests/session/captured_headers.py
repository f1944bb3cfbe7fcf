"""The part of a capture that repeats on every run: when each packet was seen, and its headers."""

from __future__ import annotations

from pathlib import Path

from analysis.decode.tcp.pcap import read_pcap

_HEADERS = (
    *("timestamp_ns", "wire_bytes", "source", "destination", "source_port", "destination_port"),
    *("tos", "ttl", "ip_identification", "sequence", "acknowledgement", "flags", "window"),
    *("payload_bytes", "timestamp_value", "timestamp_echo"),
)


def captured_headers(directory: Path) -> dict[str, list[bytes]]:
    """The headers in a run's captures, by the name of the file; a list has an entry per field.

    Not the payload: torch's store sends some bytes of an address that nobody has written, in which
    a pointer shows through; it moves when Python finds no compiled files in a fresh clone.
    """
    found = {}
    for capture in sorted((directory / "capture").glob("*.pcap")):
        packets = read_pcap(capture)
        found[capture.name] = [getattr(packets, name).tobytes() for name in _HEADERS]
    assert found, f"{directory} has no capture"
    return found
