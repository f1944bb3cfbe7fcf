"""A rank that sends and receives long streams of RDMA WRITEs: run by `testing.roce_streams`.

    python roce_stream_process.py LIBRARY PATH_MTU TIMEOUT RETRIES FLOWS

FLOWS is a file of JSON: a list of flows, each with `source`, `destination`, `size_bytes`,
`message_bytes` and `start_ns` after all are connected. A source prints a line of JSON for each
of its flows: when it began, and when each message was acknowledged.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from workloads.execution.verbs.library import Credit, Device, EventKind, Peer, VerbsError

_DEPTH = 63
_FEWEST, _UNDER_WAY_BYTES = 4, 2**20
"""A flow has so many messages under way at least, and so many bytes."""
_MARGIN_NS = 1_000_000


def _tell(name: str, value: object) -> None:
    scratch = Path(f"{name}.new")
    scratch.write_text(json.dumps(value))
    scratch.rename(name)


def _told(name: str) -> Any:
    while not Path(name).exists():
        time.sleep(0.001)
    return json.loads(Path(name).read_text())


def _credit(address: int, rkey: int, length: int) -> Credit:
    """As it comes from the wire."""
    return Credit.from_buffer_copy(struct.pack(">QII", address, rkey, length))


def main() -> int:
    library, path_mtu, timeout, retries, file = sys.argv[1:]
    me = int(os.environ["RANK"])
    flows = json.loads(Path(file).read_text())
    address = socket.gethostbyname(socket.gethostname())
    name = os.environ["GROUNDWIRE_RDMA_DEVICES"].split(",")[0]
    device = Device(Path(library), name, address)
    kept, pairs, sends = [], {}, {}
    for number, flow in enumerate(flows):
        if me not in (flow["source"], flow["destination"]):
            continue
        buffer = ctypes.create_string_buffer(flow["message_bytes"])
        region = device.register(ctypes.addressof(buffer), flow["message_bytes"])
        pair, qpn = device.make(_DEPTH)
        kept.append((buffer, region))
        pairs[number] = pair, region, qpn
        side = "source" if me == flow["source"] else "destination"
        rkey = device.remote_key(region)
        _tell(f"{number}.{side}", [address, qpn, ctypes.addressof(buffer), rkey])
    for number, (pair, _, qpn) in pairs.items():
        flow = flows[number]
        other = "destination" if me == flow["source"] else "source"
        theirs, their_qpn, where, rkey = _told(f"{number}.{other}")
        peer = Peer(theirs, their_qpn, 7, 7)
        device.connect(pair, peer, int(path_mtu), int(timeout), int(retries))
        if me == flow["source"]:
            credit = _credit(where, rkey, flow["message_bytes"])
            sends[qpn] = _Sending(number, flow, device, pair, pairs[number][1], credit)
        _tell(f"{number}.{me}.connected", 0)
    for number, flow in enumerate(flows):
        for side in ("source", "destination"):
            _told(f"{number}.{flow[side]}.connected")
    if me == flows[0]["source"]:
        _tell("origin", time.monotonic_ns() + _MARGIN_NS)
    origin = _told("origin")
    waiting = sorted(sends.values(), key=lambda each: int(each.flow["start_ns"]))
    receives = sum(
        flow["size_bytes"] // flow["message_bytes"] for flow in flows if flow["destination"] == me
    )
    for sending in waiting:
        at_ns = origin + sending.flow["start_ns"]
        Thread(target=_begin_at, args=(sending, at_ns), daemon=True).start()
    numbers = {qpn: pair for pair, _, qpn in pairs.values()}
    while receives or any(not each.over for each in sends.values()):
        for event in device.events():
            if event.kind is EventKind.FAILED:
                raise VerbsError(event.status)
            if event.kind is EventKind.MESSAGE_CAME:
                device.take(numbers[event.qpn], event.receive)
                receives -= 1
            elif event.kind is EventKind.MESSAGE_SENT:
                sends[event.qpn].acknowledged()
    for sending in waiting:
        print(json.dumps({"flow": sending.number, "origin_ns": origin} | sending.times()))
    return 0


def _begin_at(sending: _Sending, at_ns: int) -> None:
    time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
    sending.begin()


class _Sending:
    def __init__(
        self, number: int, flow: dict[str, int], device: Device, pair: Any, region: Any, to: Credit
    ) -> None:
        self.number, self.flow = number, flow
        self._device, self._pair, self._region, self._to = device, pair, region, to
        self._most = max(_FEWEST, min(_DEPTH, _UNDER_WAY_BYTES // flow["message_bytes"]))
        self._left = flow["size_bytes"] // flow["message_bytes"]
        self._under_way = 0
        self._began_ns = 0
        self._acknowledged_ns: list[int] = []

    @property
    def over(self) -> bool:
        return not self._left and not self._under_way

    def begin(self) -> None:
        self._began_ns = time.monotonic_ns()
        self._post()

    def acknowledged(self) -> None:
        self._acknowledged_ns.append(time.monotonic_ns())
        self._under_way -= 1
        self._post()

    def times(self) -> dict[str, object]:
        return {"began_ns": self._began_ns, "acknowledged_ns": self._acknowledged_ns}

    def _post(self) -> None:
        while self._left and self._under_way < self._most:
            self._left -= 1
            self._under_way += 1
            self._device.write(self._pair, self._region, 0, self._to)


if __name__ == "__main__":
    sys.exit(main())
