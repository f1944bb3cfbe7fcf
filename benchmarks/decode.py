"""Decoding a capture: numpy columns, scapy's PcapReader and tshark over the same file.

    .venv/bin/python benchmarks/decode.py [CAPTURE] [--packets N] [--json]

Each reads every packet's addresses, ports, sequence numbers, flags and lengths. Without a
file, the recorded test capture is repeated up to N packets.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from analysis.decode.tcp.pcap import FILE_HEADER_BYTES, read_pcap

RECORDED = Path(__file__).resolve().parent.parent / "tests/decode/data/three-ranks/h0-eth0.pcap.gz"
REPETITIONS = 3


def ours(path: Path) -> int:
    packets = read_pcap(path)
    return len(packets)


def scapy_reader(path: Path) -> int:
    import scapy.layers.inet
    import scapy.layers.l2  # noqa: F401
    from scapy.utils import PcapReader

    count = 0
    with PcapReader(str(path)) as reader:
        for _ in reader:
            count += 1
    return count


def tshark(path: Path) -> int:
    fields = "frame.time_epoch frame.len ip.src ip.dst tcp.srcport tcp.dstport tcp.seq tcp.ack"
    words = [word for name in (*fields.split(), "tcp.flags", "tcp.len") for word in ("-e", name)]
    done = subprocess.run(
        ["tshark", "-n", "-r", str(path), "-T", "fields", *words],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return done.stdout.count(b"\n")


def repeated(packets: int, directory: Path) -> Path:
    content = gzip.decompress(RECORDED.read_bytes())
    path = directory / "repeated.pcap"
    path.write_bytes(content)
    times = -(-packets // len(read_pcap(path)))
    path.write_bytes(content[:FILE_HEADER_BYTES] + content[FILE_HEADER_BYTES:] * times)
    return path


def best_seconds(decode: Callable[[Path], int], path: Path, expected: int) -> float:
    best = float("inf")
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        count = decode(path)
        best = min(best, time.perf_counter() - start)
        if count != expected:
            raise RuntimeError(f"{decode.__name__} read {count} packets of {expected}")
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("capture", nargs="?", type=Path)
    parser.add_argument("--packets", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = arguments.capture or repeated(arguments.packets, Path(directory))
        packets = len(read_pcap(path))
        size = path.stat().st_size
        decoders: dict[str, Callable[[Path], int] | None] = {
            "groundwire (numpy)": ours,
            "scapy PcapReader": scapy_reader,
            "tshark -T fields": tshark if shutil.which("tshark") else None,
        }
        rows = {
            name: None if decode is None else packets / best_seconds(decode, path, packets)
            for name, decode in decoders.items()
        }
    first = rows["groundwire (numpy)"]
    assert first is not None
    ratios = {name: None if rate is None else first / rate for name, rate in rows.items()}
    if arguments.json:
        print(json.dumps({"packets": packets, "bytes": size, "packets_per_second": rows,
                          "times_slower": ratios}))  # fmt: skip
        return
    table = Table(title=f"{packets} packets, {size / 1e6:.1f} MB, best of {REPETITIONS}")
    table.add_column("decoder")
    table.add_column("packets/s", justify="right")
    table.add_column("ours is faster by", justify="right")
    for name, rate in rows.items():
        if rate is None:
            table.add_row(name, "not installed", "")
        else:
            table.add_row(name, f"{rate:,.0f}", f"{ratios[name]:.1f}x")
    Console().print(table)


if __name__ == "__main__":
    main()
