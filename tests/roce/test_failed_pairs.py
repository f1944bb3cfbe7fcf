"""The fate of a rank's messages when one of its queue pairs fails; needs no device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from ctypes import c_void_p
from pathlib import Path
from queue import Queue

import pytest
import torch

from workloads.execution.verbs import queue_pairs as subject
from workloads.execution.verbs.library import Credit, Event, EventKind, Region, VerbsError
from workloads.execution.verbs.place import RocePlace

_ERROR = "transport retry counter exceeded"
_PLACE = RocePlace(Path("/a.so"), ("gw",), (0, 0, 0), "10.0.0.2", Path("/r"), 4096, 8, 7)


class _Device:
    """Sends nothing; tells what the test says has happened."""

    happened: Queue[Event]

    def __init__(self, library: Path, name: str, address: str) -> None:
        self._made = 0
        type(self).happened = Queue()

    def make(self, depth: int) -> tuple[c_void_p, int]:
        self._made += 1
        return c_void_p(), self._made

    def register(self, address: int, length: int) -> Region:
        return Region(c_void_p(), address, length)

    def release(self, region: Region) -> None:
        pass

    def give(self, pair: c_void_p, region: Region, slot: int) -> None:
        pass

    def take(self, pair: c_void_p, receive: int) -> Credit:
        return Credit()

    def events(self) -> Iterator[Event]:
        yield self.happened.get()


def _event(qpn: int, kind: EventKind, slot: int = 0, status: str = "") -> Event:
    return Event(qpn, slot, kind, status, 0)


def test_all_messages_of_a_rank_end_with_the_error_of_the_pair_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else ranks of a ring, each of which has failed towards the next one, wait for each other."""
    monkeypatch.setattr(subject, "Device", _Device)
    devices = subject.RankDevices(_PLACE)
    (failing, failing_qpn), (other, other_qpn) = devices.make(1), devices.make(2)
    came, awaited = (devices.receive(other, torch.zeros(4), slot) for slot in (0, 1))
    _Device.happened.put(_event(other_qpn, EventKind.MESSAGE_CAME))
    came.wait()
    _Device.happened.put(_event(failing_qpn, EventKind.FAILED, status=_ERROR))
    for wait in (awaited.wait, lambda: devices.receive(failing, torch.zeros(4), 2)):
        with pytest.raises(VerbsError, match=f"queue pair to rank 1: {_ERROR}"):
            wait()


def test_what_comes_after_a_failure_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device may tell after a failure of a message that had come before it."""
    monkeypatch.setattr(subject, "Device", _Device)
    devices = subject.RankDevices(_PLACE)
    (pair, qpn), (_, other_qpn) = devices.make(1), devices.make(2)
    awaited = devices.receive(pair, torch.zeros(4), 0)
    _Device.happened.put(_event(other_qpn, EventKind.FAILED, status=_ERROR))
    with pytest.raises(VerbsError, match="rank 2"):
        awaited.wait()
    for kind in (EventKind.MESSAGE_CAME, EventKind.FAILED, EventKind.MESSAGE_SENT):
        _Device.happened.put(_event(qpn, kind, status="Work Request Flushed Error"))
    began = time.monotonic()
    while not _Device.happened.empty() and time.monotonic() < began + 60:
        time.sleep(0.001)
    assert _Device.happened.empty()  # who hears of events lives
    with pytest.raises(VerbsError, match=f"queue pair to rank 2: {_ERROR}"):
        devices.receive(pair, torch.zeros(4), 1)
