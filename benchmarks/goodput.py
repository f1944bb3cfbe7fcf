"""One TCP flow of 1 GB over one link of the virtual kernel, against what headers leave of the rate.

    .venv/bin/python benchmarks/goodput.py [--size-bytes N] [--gbps N ...] [--json]

Goodput of the transfer's 10% to 90%, as a share of R * (M - 52) / (M + 38) (TCP timestamps on).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.build import ensure_kernel
from testing.queue_lab import lab, line
from testing.tcp_flows import transfer

ROOT = Path(__file__).resolve().parent.parent


def inside(gbps: int, mtu: int, size_bytes: int) -> None:
    """In the guest: one transfer, its share of the limit as a line of JSON."""
    limit = gbps * 1e9 * (mtu - 52) / (mtu + 38)
    with lab(line(1, rate=f"{gbps}Gbps", delay="1us", mtu=mtu)) as it:
        (flow,) = transfer(it, [("a", "b")], size_bytes)
    print(json.dumps({"gbps": gbps, "mtu": mtu, "share": flow.steady_bps() / limit}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size-bytes", type=int, default=10**9)
    parser.add_argument("--gbps", type=int, nargs="+", default=[1, 10, 100, 400, 800])
    parser.add_argument("--mtu", type=int, nargs="+", default=[1500, 9000])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.gbps[0], arguments.mtu[0], arguments.size_bytes)
        return
    kernel = ensure_kernel(lambda text: print(text, file=sys.stderr))
    for gbps in arguments.gbps:
        for mtu in arguments.mtu:
            said: list[str] = []
            words = [f"--gbps={gbps}", f"--mtu={mtu}", f"--size-bytes={arguments.size_bytes}"]
            guest = GuestSpec((sys.executable, __file__, "--inside", *words), directory=ROOT)
            started = time.monotonic()
            ended = run_guest(kernel, guest, said.append, said.append)
            if ended.reason != "exited" or ended.exit_status:
                sys.exit("\n".join([f"{ended.reason} {ended.message}", *said]))
            row = json.loads(said[-1]) | {"wall_s": round(time.monotonic() - started, 1)}
            if arguments.json:
                print(json.dumps(row), flush=True)
            else:
                words = [f"{gbps:4d} Gb/s", f"MTU {mtu}", f"{100 * row['share']:.5f} %"]
                print("  ".join([*words, f"{row['wall_s']} s"]), flush=True)


if __name__ == "__main__":
    main()
