"""rates.jsonl: the rates of queue pairs over time, as the kernel kept them."""

from __future__ import annotations

import json
from pathlib import Path

from emulator.network.network import Network
from emulator.rdma.congestion import read_rates, samples_lost


def write_rates(network: Network, path: Path) -> int:
    """Write the samples of all devices, a line each, by host and port; returns for how many there
    was no room. Writes no file when nothing was sampled. Raises OSError."""
    lost = 0
    lines = []
    for host, devices in network.rdma_devices.items():
        for device, context in zip(devices, network.contexts(host), strict=True):
            lost += samples_lost(device)
            lines += [
                json.dumps(
                    {
                        "host": host,
                        "port": context.port.interface,
                        "qpn": sample.qpn,
                        "time_ns": sample.time_ns,
                        "rate_bps": sample.rate_bps,
                    }
                )
                for sample in read_rates(device)
            ]
    if lines:
        path.write_text("".join(f"{line}\n" for line in lines))
    return lost
