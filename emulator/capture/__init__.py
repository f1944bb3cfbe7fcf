"""Capture: packets at chosen ports, into one nanosecond pcap file per port."""

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
