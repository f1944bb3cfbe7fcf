"""Capture: packets at chosen ports, into one nanosecond pcap file per port.

It attributes no byte: `analysis/decode` does. Three names to know: `start_capture`, `CapturePlan`
(ports, bytes and filter) and `CaptureStats`.
"""

from emulator.capture.capture import Capture, start_capture
from emulator.capture.port import CaptureError, CapturePort, CaptureStats, capture_ports

__all__ = [
    "Capture",
    "CaptureError",
    "CapturePort",
    "CaptureStats",
    "capture_ports",
    "start_capture",
]
