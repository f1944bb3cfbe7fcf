"""Two ranks with a queue pair each, one of which does what cannot end well.

    python failing_process.py FAULT

Rank 0 writes to rank 1 with a key that is none (`key`), or to a rank that has gone (`gone`). The
error that its device tells ends it.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workloads.execution.transports.interface import place_variable
from workloads.execution.verbs.library import Credit, Device, EventKind, Peer, VerbsError
from workloads.execution.verbs.place import RocePlace

_SIZE = 65_536


def _tell(name: str, value: object) -> None:
    Path(f"{name}.new").write_text(json.dumps(value))
    Path(f"{name}.new").rename(name)


def _told(name: str) -> Any:
    while not Path(name).exists():
        time.sleep(0.001)
    return json.loads(Path(name).read_text())


def main() -> int:
    fault, me = sys.argv[1], int(os.environ["RANK"])
    place = RocePlace.from_json(os.environ[place_variable("roce")])
    device = Device(place.library, place.devices[0], place.address)
    buffer = ctypes.create_string_buffer(_SIZE)
    region = device.register(ctypes.addressof(buffer), _SIZE)
    pair, number = device.make(8)
    _tell(f"ends.{me}", [place.address, number, region.address, device.remote_key(region)])
    address, qpn, where, key = _told(f"ends.{1 - me}")
    peer = Peer(address, qpn, 7, 7)
    device.connect(pair, peer, place.path_mtu_bytes, place.timeout_exponent, place.retries)
    _tell(f"connected.{me}", 0)
    _told(f"connected.{1 - me}")
    if me == 1:
        if fault != "gone":
            _told("told")
        return 0
    if fault == "gone":
        time.sleep(0.5)
    told = key ^ 0x5A5A if fault == "key" else key
    credit = Credit.from_buffer_copy(struct.pack(">QII", where, told, _SIZE))
    device.write(pair, region, 0, credit)
    for event in device.events():
        _tell("told", 0)
        if event.kind is EventKind.FAILED:
            raise VerbsError(f"queue pair to rank 1: {event.status}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
