"""Records the test data: ranks in network namespaces around one bridge, on this kernel.

    sudo python -m tests.decode.record DIRECTORY RANKS SIZE_BYTES [MTU [RATE_MBIT]]

Writes one capture per rank and `collectives.jsonl`, the ranks' log (CLOCK_MONOTONIC). Every
kind of collective runs, in three process groups, some at the same time. Needs root, and
`ip` and `ethtool`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyroute2 import NetNS, netns

from emulator.capture import CapturePort, start_capture

_NAME = "gwrecord"


def main(
    directory: Path, ranks: int, size_bytes: int, mtu_bytes: int = 9000, rate_mbit: int = 0
) -> None:
    names = [f"{_NAME}{rank}" for rank in range(ranks)]
    switch = f"{_NAME}s"
    for name in (*names, switch):
        netns.create(name)
    try:
        _wire(names, switch, mtu_bytes, rate_mbit)
        ports = [
            CapturePort(f"h{rank}", "eth0", Path("/run/netns") / name, 10**11)
            for rank, name in enumerate(names)
        ]
        with start_capture(ports, directory, backend="ring") as capture:
            workers = [
                subprocess.Popen(
                    ["ip", "netns", "exec", name, sys.executable, "-m", "tests.decode.record",
                     "rank", str(rank), str(ranks), str(size_bytes)],
                    stdout=subprocess.PIPE,
                )
                for rank, name in enumerate(names)
            ]  # fmt: skip
            logs = [worker.communicate()[0] for worker in workers]
            time.sleep(0.2)
            stats = capture.stop()
        assert all(worker.returncode == 0 for worker in workers)
        assert not any(port.invalid_reason for port in stats)
        (directory / "collectives.jsonl").write_bytes(b"".join(logs))
    finally:
        for name in (*names, switch):
            netns.remove(name)


def _wire(names: list[str], switch: str, mtu_bytes: int, rate_mbit: int) -> None:
    with NetNS(switch) as middle:
        middle.link("add", ifname="br0", kind="bridge")
        bridge = middle.link_lookup(ifname="br0")[0]
        middle.link("set", index=bridge, state="up", mtu=mtu_bytes)
        for rank, name in enumerate(names):
            with NetNS(name) as host:
                peer = {"ifname": "eth0", "net_ns_fd": name}
                middle.link("add", ifname=f"p{rank}", kind="veth", peer=peer)
                port = middle.link_lookup(ifname=f"p{rank}")[0]
                middle.link("set", index=port, mtu=mtu_bytes, master=bridge, state="up")
                eth0 = host.link_lookup(ifname="eth0")[0]
                host.link("set", index=eth0, mtu=mtu_bytes, state="up")
                host.addr("add", index=eth0, address=f"10.0.0.{rank + 1}", prefixlen=24)
                if rate_mbit:
                    # Queues make messages share segments, which cuts preambles.
                    for end, index in ((host, eth0), (middle, port)):
                        end.tc("add", "tbf", index, rate=f"{rate_mbit}mbit", burst=20_000,
                               limit=300_000)  # fmt: skip
                host.link("set", index=host.link_lookup(ifname="lo")[0], state="up")
            for at, interface in ((name, "eth0"), (switch, f"p{rank}")):
                subprocess.run(
                    ["ip", "netns", "exec", at, "ethtool", "-K", interface,
                     "tso", "off", "gso", "off", "gro", "off"],
                    check=True,
                )  # fmt: skip


def rank_main(rank: int, ranks: int, size_bytes: int) -> None:
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    dist.init_process_group("gloo", init_method="tcp://10.0.0.1:29500", rank=rank, world_size=ranks)
    everybody = tuple(range(ranks))
    even = tuple(range(0, ranks, 2))
    groups = {
        "default": (None, everybody),
        "even.0": (dist.new_group(list(even)), even),
        "copy.0": (dist.new_group(list(everybody)), everybody),
    }
    tags: Counter[str] = Counter()
    count = size_bytes // 4 // ranks * ranks
    x, whole = torch.ones(count), torch.empty(count)
    shard = torch.ones(count // ranks)
    parts = [torch.empty_like(shard) for _ in everybody]

    def run(
        kind: str,
        call: Callable[[], Any],
        size: int = count * 4,
        group: str = "default",
        members: tuple[int, ...] = (),
        counted: bool = True,
    ) -> None:
        number = tags[group]
        tags[group] += counted
        start = time.monotonic_ns()
        work = call()
        if work is not None:
            work.wait()
        print(
            json.dumps(
                {
                    "id": f"{group}.{kind}.{number}",
                    "kind": kind,
                    "group": group,
                    "tag": number if counted else None,
                    "size_bytes": size,
                    "rank": rank,
                    "ranks": members or groups[group][1],
                    "start_ns": start,
                    "end_ns": time.monotonic_ns(),
                }
            )
        )

    root = rank == 0
    run("barrier", dist.barrier, 0)
    run("all_reduce", lambda: dist.all_reduce(x))
    run("all_gather", lambda: dist.all_gather_into_tensor(whole, shard))
    run("broadcast", lambda: dist.broadcast(x, 0))
    run("reduce", lambda: dist.reduce(x, 0))
    run("all_to_all", lambda: dist.all_to_all_single(whole, x))
    run("reduce_scatter", lambda: dist.reduce_scatter_tensor(shard, x))
    run("gather", lambda: dist.gather(shard, parts if root else None, 0))
    run("scatter", lambda: dist.scatter(shard, list(x.split(len(shard))) if root else None, 0))
    for sender, receiver, size in ((0, 1, count), (1, 0, count // 2), (0, 1, count // 4)):
        if rank in (sender, receiver):
            y = torch.ones(size)
            if rank == sender:
                run("send_recv", lambda: dist.isend(y, receiver, tag=7), size * 4,  # noqa: B023
                    members=(sender, receiver), counted=False)  # fmt: skip
            else:
                run("send_recv", lambda: dist.irecv(y, sender, tag=7), size * 4,  # noqa: B023
                    members=(sender, receiver), counted=False)  # fmt: skip
    if rank in even:
        run("all_reduce", lambda: dist.all_reduce(x, group=groups["even.0"][0]), group="even.0")
    # Two collectives at once, each in its own group.
    y, z = torch.ones(count), torch.ones(count)
    first = dist.all_reduce(y, async_op=True)
    run("all_reduce", lambda: dist.all_reduce(z, group=groups["copy.0"][0]), group="copy.0")
    run("all_reduce", lambda: first)
    run("barrier", dist.barrier, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank_main(*map(int, sys.argv[2:5]))
    else:
        main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
