"""How long a fat-tree takes to stand and to go: ours beside stock Mininet, in one run.

    sudo .venv/bin/python benchmarks/bring_up.py [--k K] [--repeat N] [--no-stock] [--json]

Stock is `Mininet(topo, link=TCLink)` with `bw` only, switches as plain nodes: no address, no route
and no forwarding is set up on the switches. Ours has all of that: addresses, routes and neighbours
on every node, sysctls, a shaped queue at both ends of every link, and every link carrying packets.
Computing the routes counts as ours. "Down" ends when the kernel has freed the last namespace, which
it does behind the back of the process that let it go; so both sides wait for the kernel's own
clean-up queue to run dry. `curve` shows cost against links for k = 4, 8, 12 (and 16 with --k 16).
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulator.linux import namespaces, rtnetlink
from emulator.linux.netlink import NetlinkSocket
from emulator.network.network import Network, NetworkOptions
from emulator.ports.arrangement import RateOnlyArrangement
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import compute_routes
from topologies.spec.fabric_section import FatTreeSpec

RATE_MBPS = 1000  # the most that stock Mininet's TCIntf accepts


def fat_tree(k: int) -> Fabric:
    return build_fabric(
        FatTreeSpec.model_validate(
            {
                "kind": "fat-tree",
                "k": k,
                "link": {"rate": f"{RATE_MBPS}Mbps", "delay": 0, "mtu": 1500},
            }
        )
    )


def settle() -> None:
    """Returns when the kernel has freed all namespaces let go before. It frees them in order on one
    queue: a namespace let go now is freed after them. Two in a row, because the first may join a
    batch whose devices vanish before the batch is done."""
    for _ in range(2):
        name = f"gwb{secrets.token_hex(4)}"
        path = Path("/run") / name
        inside = 2
        descriptor = namespaces.create([path], lambda _: None)[0]
        try:
            with NetlinkSocket() as netlink:
                own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
                ends = (
                    rtnetlink.VethEnd("gwb", inside, descriptor, "02:47:57:ff:ff:fe"),
                    rtnetlink.VethEnd(name, 0x7FFF_0000 - os.getpid(), own, "02:47:57:ff:ff:ff"),
                )
                netlink.execute([rtnetlink.veth(*ends, 1500)])
                os.close(own)
                os.close(descriptor)
                namespaces.unmount(path)
                path.unlink()
                while (Path("/sys/class/net") / name).exists():
                    time.sleep(0.001)
        except BaseException:
            if path.exists():
                namespaces.unmount(path)
                path.unlink()
            raise


def measure(up: Callable[[], object], down: Callable[[], object]) -> dict[str, float]:
    began = time.perf_counter()
    up()
    up_at = time.perf_counter()
    down()
    returned_at = time.perf_counter()
    settle()
    return {
        "up_s": up_at - began,
        "down_s": time.perf_counter() - up_at,
        "down_returned_s": returned_at - up_at,
    }


def measure_ours(fabric: Fabric) -> dict[str, float]:
    network: list[Network] = []

    def up() -> None:
        options = NetworkOptions(arrangement=RateOnlyArrangement())
        network.append(Network(fabric, compute_routes(fabric), options))
        network[0].up()

    return measure(up, lambda: network[0].down())


def measure_stock(fabric: Fabric) -> dict[str, float]:
    from mininet.link import TCLink
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.topo import Topo

    setLogLevel("critical")  # a warning of HTB for every link otherwise
    topo = Topo()
    # Mininet's interfaces live in one namespace for a moment: the names must be unique and short.
    for index in range(len(fabric.nodes)):
        topo.addHost(f"n{index}")
    number = {node.name: index for index, node in enumerate(fabric.nodes)}
    for link in fabric.links:
        topo.addLink(f"n{number[link.a.node]}", f"n{number[link.b.node]}", bw=RATE_MBPS)
    nets: list[Mininet] = []

    def up() -> None:
        nets.append(Mininet(topo=topo, link=TCLink, controller=None))
        nets[0].start()

    return measure(up, lambda: nets[0].stop())


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(run[key] for run in runs), 4) for key in runs[0]}


def size(fabric: Fabric) -> dict[str, int]:
    return {"nodes": len(fabric.nodes), "links": len(fabric.links)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--k", type=int, default=8, help="the fat-tree to compare at (default 8)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each side (default 3)")
    parser.add_argument("--no-stock", action="store_true", help="ours only")
    parser.add_argument("--json", action="store_true", help="the result as one JSON object")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("bring_up: needs root, as it makes network namespaces", file=sys.stderr)
        return 2
    if not arguments.no_stock and not shutil.which("mnexec"):
        print(
            "bring_up: stock Mininet needs mnexec: apt-get install --no-install-recommends mininet",
            file=sys.stderr,
        )
        return 2
    fabric = fat_tree(arguments.k)
    ours, stock = [], []
    for _ in range(arguments.repeat):  # in turns, so that both meet the same machine
        ours.append(measure_ours(fabric))
        if not arguments.no_stock:
            stock.append(measure_stock(fabric))
    result: dict[str, object] = {"k": arguments.k, **size(fabric), "ours": median(ours)}
    if stock:
        theirs, mine = median(stock), median(ours)
        result["stock"] = theirs
        result["ratio_up"] = round(theirs["up_s"] / mine["up_s"], 1)
        result["ratio_down"] = round(theirs["down_s"] / mine["down_s"], 1)
    curve = []
    for k in sorted({4, 8, 12, arguments.k}):
        other = fat_tree(k)
        runs = [measure_ours(other) for _ in range(arguments.repeat)]
        row = {"k": k, **size(other), **median(runs)}
        row["up_us_per_link"] = round(1e6 * float(row["up_s"]) / len(other.links), 1)
        curve.append(row)
    result["curve"] = curve
    if arguments.json:
        print(json.dumps(result))
        return 0
    print(f"fat-tree k={arguments.k}: {result['nodes']} nodes, {result['links']} links")
    for who in ("ours", "stock"):
        if who in result:
            row = dict(result[who])  # type: ignore[call-overload]
            print(f"  {who:6} up {row['up_s']:8.3f} s   down {row['down_s']:8.3f} s")
    if stock:
        print(f"ratio_up {result['ratio_up']}\nratio_down {result['ratio_down']}")
    print("cost against size (ours):")
    for row in curve:
        print(
            f"  k={row['k']:<3} {row['links']:5} links  up {row['up_s']:7.3f} s "
            f"({row['up_us_per_link']:6.1f} us a link)  down {row['down_s']:7.3f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
