"""Algorithms of collectives: rings, trees, hierarchies, and the order of gradients."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from math import log2
from typing import Any

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment
from benchmarks.claims.rules import BYTES, Above, AtLeast, AtMost, Within

_NCCL = "NVIDIA, NCCL 2.4 (blog, as copied by a third party); Sanders et al. 2009"
_BLUE = "Cho et al., 2019 (BlueConnect)"
_MSCCL = "msccl-tools, its examples"

_REDUCE = """
name: algorithms
fabric: {fabric}
workload:
  kind: collectives
  ranks: {ranks}
  operations: [{{kind: all_reduce, size: {size}, program: {program}}}]
collectives: {{smallest_chunk: 16KB}}
capture: {{points: []}}
predict: [packet]
"""
_RING = "{algorithm: ring}"


def _tree(chunks: int) -> str:
    return f"{{algorithm: double-binary-tree, chunks: {chunks}}}"


def _star(ranks: int) -> str:
    return f"{{kind: flat, hosts: {ranks}, link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}}}"


def _latency(bench: Bench) -> Mapping[str, Any]:
    """A ring's time over a double binary tree's, of 4 KB, by ranks on a switch; and on a fat-tree
    with other ports of ECMP."""
    found: dict[str, Any] = {"star": {}}
    for ranks in (16, 32, 64, 128):
        us = [
            bench.durations_us(
                _REDUCE.format(fabric=_star(ranks), ranks=ranks, size="4KB", program=program)
            )[0]
            for program in (_RING, _tree(1))
        ]
        found["star"][str(ranks)] = us[0] / us[1]
    ring, tree = (
        bench.draws_us(
            _REDUCE.format(fabric="{kind: fat-tree, k: 4}", ranks=16, size="4KB", program=program)
        )
        for program in (_RING, _tree(1))
    )
    found["fat_tree"] = [a / b for a, b in zip(ring, tree, strict=True)]
    found["steps_at_24576"] = 2 * (24_576 - 1) / (2 * log2(24_576))
    return found


_DEEP = "link: {rate: 100Gbps, delay: 500ns, mtu: 9000}, queue: {kind: droptail, buffer: 64MB}"


def _bandwidth(bench: Bench) -> Mapping[str, Any]:
    """A tree's time over a ring's, 16 MB on 16 hosts."""
    found: dict[str, Any] = {}
    for name, fabric, chunks in (
        ("fat_tree", f"{{kind: fat-tree, k: 4, {_DEEP}}}", 16),
        ("fat_tree_64", f"{{kind: fat-tree, k: 4, {_DEEP}}}", 64),
        ("star_64", f"{{kind: flat, hosts: 16, {_DEEP}}}", 64),
    ):
        ring, tree = (
            bench.draws_us(
                _REDUCE.format(fabric=fabric, ranks=16, size="16MB", program=program)
                + "transport: {initial_window: 100}\n"
            )
            for program in (_RING, _tree(chunks))
        )
        found[name] = [b / a for a, b in zip(ring, tree, strict=True)]
    return found


_RAILS = """
name: rails
fabric: {{kind: rails, servers: 2, hosts_per_server: 4, links: {{scale-up: {{rate: 800Gbps}}}}}}
workload:
  kind: collectives
  ranks: 8
  operations: [{{kind: all_reduce, size: 4MB}}]
collectives:
  backend: programs
  all_reduce: {{algorithm: hierarchical, across: double-binary-tree, full_size: {full}, chunks: 4}}
capture: {{points: []}}
predict: []
"""


def _hierarchy(bench: Bench) -> Mapping[str, Any]:
    """The bytes that NICs send with all the data across, over those that they send after a
    reduce-scatter inside."""
    sent = {}
    for full in ("true", "false"):
        directory = bench.run(_RAILS.format(full=full))
        ports = [json.loads(line) for line in (directory / "links.jsonl").read_text().splitlines()]
        sent[full] = sum(
            p["bytes"] for p in ports if p["node"].startswith("h") and p["peer"].startswith("rail")
        )
    return {"fewer": sent["true"] / sent["false"], "full": sent["true"], "part": sent["false"]}


_NODE = """
name: node
fabric: {{kind: rails, servers: 4, hosts_per_server: 4, servers_per_leaf: 4,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}, links: {{scale-up: {{rate: {inside}}}}}}}
workload:
  kind: collectives
  ranks: 16
  operations: [{{kind: all_reduce, size: {size}, program: {program}}}]
capture: {{points: []}}
predict: [packet]
"""


def _inside(bench: Bench) -> Mapping[str, Any]:
    """A ring over 16 hosts of 100 Gb/s beside the same hosts in servers of 4, by size."""
    found: dict[str, Any] = {}
    program = "{algorithm: hierarchical, inside: ring, across: ring, chunks: 8}"
    for size in ("64KB", "1MB", "16MB"):
        (flat,) = bench.durations_us(
            _REDUCE.format(fabric=_star(16), ranks=16, size=size, program=_RING)
        )
        (fast,) = bench.durations_us(_NODE.format(inside="1200Gbps", size=size, program=program))
        (slow,) = bench.durations_us(_NODE.format(inside="100Gbps", size=size, program=program))
        found[size] = {"over_flat": flat / fast, "over_slow_inside": slow / fast}
    return found


_COUNT = """
name: count
fabric: {{kind: flat, hosts: 16}}
workload:
  kind: collectives
  ranks: 16
  operations: [{{kind: {kind}, size: 16MiB, program: {program}}}]
predict: [alpha-beta]
"""


def _count(bench: Bench) -> Mapping[str, Any]:
    """Messages and bytes of schedules, counted: 16 ranks, nodes of 4."""
    size, ranks, node = 2**24, 16, 4

    def sent(kind: str, program: str) -> tuple[float, float, float, float, float]:
        forecast = bench.predict(_COUNT.format(kind=kind, program=program), {}, "alpha-beta")
        (found,) = forecast.collectives
        messages = [
            (int(source), int(destination), int(size_bytes))
            for post in found.call.schedule.posts(found.call.shape)
            for source, destination, size_bytes in zip(
                post.source, post.destination, post.size_bytes, strict=True
            )
        ]
        total = sum(each[2] for each in messages) / ranks
        across = [each for each in messages if each[0] // node != each[1] // node]
        crossing = sum(each[2] for each in across) / ranks
        own: Counter[int] = Counter()
        for source, _, size_bytes in messages:
            own[source] += size_bytes
        most = float(max(own.values()))
        return len(messages) / ranks, total, len(across) / ranks, crossing, most

    halving = sent("all_reduce", "{algorithm: halving-doubling}")
    ring = sent("all_reduce", _RING)
    tree = sent("all_reduce", _tree(1))
    direct = sent("all_to_all", "{algorithm: direct}")
    two_step = sent("all_to_all", f"{{algorithm: two-step, ranks_per_node: {node}}}")
    return {
        "halving_messages": halving[0],
        "halving_bytes": halving[1] / size,
        "ring_messages": ring[0],
        "ring_bytes": ring[1] / size,
        "tree_bytes": tree[1] / size,
        "tree_most": tree[4] / size,
        "direct_across": direct[2],
        "two_step_across": two_step[2],
        "across_bytes_ratio": two_step[3] / direct[3],
    }


_VGG = """
name: vgg
fabric: {{kind: flat, hosts: 8, link: {{rate: {rate}, delay: 500ns, mtu: 9000}}}}
workload:
  kind: layers
  ranks: 8
  passes: 3
  parallelism: data
  layers:
{layers}
collectives: {{backend: programs, all_reduce: {{algorithm: ring, chunks: 8}}, order: {order},
  in_flight: 2}}
capture: {{points: []}}
predict: [packet]
"""
_VGG_LAYERS = (
    ("conv1-2", 0.15, 0.26e6),
    ("conv3", 0.25, 1.48e6),
    ("conv4", 0.30, 5.9e6),
    ("conv5", 0.15, 7.1e6),
    ("fc6", 0.10, 102.8e6),
    ("fc7", 0.03, 16.8e6),
    ("fc8", 0.02, 4.1e6),
)
"""Name, part of the computing, weights (Simonyan and Zisserman 2015, table 2, VGG-16)."""


def _priority(bench: Bench) -> Mapping[str, Any]:
    """FIFO over LIFO, three passes of VGG-16 with a 64th of its bytes, computing as long as a
    ring's all-reduces at 100 Gb/s, at a half and a quarter of the rate as well."""
    sizes = [4 * weights / 64 for _, _, weights in _VGG_LAYERS]
    whole_ns = 2 * sum(sizes) * 7 / 8 * 8e9 / 100e9
    rows = []
    for (name, part, _), size in zip(_VGG_LAYERS, sizes, strict=True):
        third = round(whole_ns * part / 3)
        gradient = f"{{compute: {third}ns, collective: all_reduce, size: {round(size / 32) * 32}}}"
        rows.append(
            f"    - {{name: {name}, forward: {{compute: {third}ns}}, "
            f"input_gradient: {{compute: {third}ns}}, weight_gradient: {gradient}}}"
        )
    found: dict[str, Any] = {}
    for rate in ("100Gbps", "50Gbps", "25Gbps"):
        us = {}
        for order in ("fifo", "lifo"):
            text = _VGG.format(rate=rate, layers="\n".join(rows), order=order)
            us[order] = bench.iteration(text)[0].duration_ns / 1000
        found[rate] = us["fifo"] / us["lifo"]
    return {"faster": found}


LATENCY = Experiment("tree-latency", "packet engine", _latency)
BANDWIDTH = Experiment("tree-bandwidth", "packet engine", _bandwidth)
HIERARCHY = Experiment("hierarchy-bytes", "virtual kernel", _hierarchy)
INSIDE = Experiment("inside-node", "packet engine", _inside)
COUNT = Experiment("schedules", "arithmetic", _count, cheap=True)
PRIORITY = Experiment("gradient-order", "packet engine", _priority)

CLAIMS = (
    Claim(
        "tree-latency",
        "A double binary tree beats a ring in latency, the more the larger the cluster",
        _NCCL,
        "“up to 180x” at 24,576 GPUs",
        "2 (N - 1) steps over 2 log2 N",
        setting="4 KB; 16, 32, 64, 128 hosts on a switch, and 16 on a k=4 fat-tree",
        experiment=LATENCY,
        shows="{star[16]:.1f}, {star[32]:.1f}, {star[64]:.1f}, {star[128]:.1f} times; fat-tree "
        "{fat_tree:.1f}",
        rules=(
            AtLeast("fat_tree", 1.5),
            Above("star.32", "star.16"),
            Above("star.64", "star.32"),
            Above("star.128", "star.64"),
        ),
    ),
    Claim(
        "tree-180",
        "It is up to 180 times as fast on Summit",
        _NCCL,
        "“up to 180x” at 24,576 GPUs",
        "1,685 times by steps alone",
        untested="24,576 ranks are beyond every model here; the row above has 128",
    ),
    Claim(
        "tree-bandwidth",
        "The tree keeps the full bandwidth for large sizes",
        _NCCL,
        "full bandwidth kept",
        "1.07 on 16 ranks: an inner rank sends 2 S, a ring's 2 S 15 / 16; a tenth more is allowed",
        setting="16 MB on 16 hosts, time over a ring's; windows begin at 100 segments, buffers "
        "lose nothing; k=4 fat-tree in 16 and 64 chunks, one switch in 64",
        experiment=BANDWIDTH,
        shows="{fat_tree:.2f}; {fat_tree_64:.2f}; {star_64:.2f}",
        rules=tuple(AtMost(name, 1.18) for name in ("fat_tree", "fat_tree_64", "star_64")),
    ),
    Claim(
        "hierarchy-bytes",
        "Reduce-scatter inside divides the bytes across servers by the ranks of a server",
        _BLUE,
        "no figure found",
        "4 times fewer with 4 ranks a server",
        setting="2 servers of 4, 4 MB, by the NICs' port counters, headers and set-up included",
        experiment=HIERARCHY,
        shows="{fewer:.2f} times fewer: {full:,} and {part:,} bytes",
        rules=(Within("fewer", 4, BYTES),),
    ),
    Claim(
        "inside-node",
        "A fast network inside a node speeds up an all-reduce",
        _BLUE,
        "no figure",
        setting="16 hosts of 100 Gb/s; servers of 4 with 1,200 Gb/s inside, 64 KB, 1 MB, 16 MB",
        experiment=INSIDE,
        shows="{64KB[over_flat]:.2f}, {1MB[over_flat]:.2f}, {16MB[over_flat]:.2f} times a ring "
        "over all; {64KB[over_slow_inside]:.2f}, {1MB[over_slow_inside]:.2f}, "
        "{16MB[over_slow_inside]:.2f} times the same with 100 Gb/s inside",
        rules=tuple(
            AtLeast(f"{size}.{over}", 1.0)
            for size in ("64KB", "1MB", "16MB")
            for over in ("over_flat", "over_slow_inside")
        ),
    ),
    Claim(
        "blueconnect-sync",
        "Synchronisation takes 87% less on 192 GPUs, ResNet-50",
        _BLUE,
        "87%",
        untested="the cluster's network and the baseline are not told in what could be read",
    ),
    Claim(
        "halving-doubling",
        "Halving and doubling has 2 log2 N steps and sends 2 S (N - 1) / N",
        _MSCCL,
        "its code",
        "8 messages, 1.875 S with 16 ranks",
        setting="the schedule of 16 ranks, counted",
        experiment=COUNT,
        shows="{halving_messages:.0f} messages a rank, {halving_bytes:.3f} S",
        rules=(Within("halving_messages", 8, 0.0), Within("halving_bytes", 1.875, 0.001)),
    ),
    Claim(
        "two-step",
        "Two steps send M - 1 messages a rank between nodes for (M - 1) G, and the same bytes",
        _MSCCL,
        "its code",
        "3 for 12 with 4 nodes of 4",
        setting="the schedules of 16 ranks, counted",
        experiment=COUNT,
        shows="{two_step_across:.0f} for {direct_across:.0f} messages, "
        "{across_bytes_ratio:.3f} times the bytes",
        rules=(
            Within("two_step_across", 3, 0.0),
            Within("direct_across", 12, 0.0),
            Within("across_bytes_ratio", 1, 0.001),
        ),
    ),
    Claim(
        "ring-bytes",
        "A ring has 2 (N - 1) steps of S / N, a double binary tree sends 2 S at most",
        _NCCL,
        "its code",
        "30 messages and 1.875 S with 16 ranks",
        setting="the schedules of 16 ranks, counted",
        experiment=COUNT,
        shows="{ring_messages:.0f} messages a rank, {ring_bytes:.3f} S; the tree "
        "{tree_bytes:.3f} S on average, {tree_most:.3f} S at most",
        rules=(
            Within("ring_messages", 30, 0.0),
            Within("ring_bytes", 1.875, 0.001),
            AtMost("tree_most", 2),
        ),
    ),
    Claim(
        "gradient-order",
        "Letting the first layers' gradients overtake shortens a step",
        "Peng et al., SOSP 2019 (ByteScheduler)",
        "values not looked up",
        setting="VGG-16 with a 64th of its bytes, 8 ranks, three passes, LIFO over FIFO; "
        "computing as long as the all-reduces at 100 Gb/s; 100, 50, 25 Gb/s",
        experiment=PRIORITY,
        shows="{faster[100Gbps]:.2f}, {faster[50Gbps]:.2f}, {faster[25Gbps]:.2f} times as fast",
        rules=tuple(AtLeast(f"faster.{rate}", 1.02) for rate in ("100Gbps", "50Gbps", "25Gbps")),
    ),
)
