"""A good spec, and what can be wrong in it."""

from __future__ import annotations

GOOD = """\
name: good
seed: 1
fabric:
  kind: fat-tree
  k: 4
  link: {rate: 100Gbps, delay: 500ns, mtu: 9000}
  queue: {kind: dctcp, k: 100KB, buffer: 4MB}
  routing: ecmp
transport: {congestion_control: dctcp, rcvbuf: 16MB}
placement: linear
workload:
  kind: collectives
  ranks: 16
  iterations: 2
  operations: [{kind: all_reduce, size: 8MB}]
compute: {device: v100}
capture: {points: [hosts], snaplen: 160}
predict: [alpha-beta]
scale: auto
"""
FABRIC = GOOD[GOOD.index("  kind: fat-tree") : GOOD.index("transport")]
PLACED = {rank: f"h{rank}" for rank in range(16)}
OPERATION = "{kind: all_reduce, size: 8MB}"

# What is replaced in GOOD, by what; then the line, key, value and part of what is allowed.
MISTAKES = {
    "odd k": ("k: 4\n", "k: 5\n", 5, "fabric.k", "5", "an even number from 4 to 26"),
    "k too large": ("k: 4\n", "k: 28\n", 5, "fabric.k", "28", "an even number from 4 to 26"),
    "k as text": ("k: 4\n", "k: four\n", 5, "fabric.k", "four", "a whole number"),
    "k as a boolean": ("k: 4\n", "k: yes\n", 5, "fabric.k", "true", "a whole number"),
    "unknown fabric": (
        "kind: fat-tree",
        "kind: fattree",
        4,
        "fabric.kind",
        "fattree",
        "did you mean fat-tree? allowed: fat-tree, torus",
    ),
    "no fabric kind": ("  kind: fat-tree\n", "", 3, "fabric.kind", "nothing", "allowed: fat-tree"),
    "unknown top key": ("seed: 1", "sed: 1", 2, "sed", "1", "did you mean seed? allowed: name"),
    "unknown section key": (
        "delay: 500ns",
        "dleay: 500ns",
        6,
        "fabric.link.dleay",
        "500ns",
        "did you mean delay? allowed: rate, delay, mtu",
    ),
    "no workload": (
        GOOD[GOOD.index("workload:") : GOOD.index("compute")],
        "",
        None,
        "workload",
        "nothing",
        "required",
    ),
    "rate without unit": ("100Gbps", "100", 6, "fabric.link.rate", "100", "100Gbps or 1.6Tbps"),
    "rate in a size's unit": ("100Gbps", "100GB", 6, "fabric.link.rate", "100GB", "100Gbps"),
    "rate of nothing": ("100Gbps", "0Gbps", 6, "fabric.link.rate", "0Gbps", "1kbps to 10Tbps"),
    "delay without unit": ("500ns", "500", 6, "fabric.link.delay", "500", "whole nanoseconds"),
    "part of a nanosecond": ("500ns", "0.5ns", 6, "fabric.link.delay", "0.5ns", "nanoseconds"),
    "small MTU": ("mtu: 9000", "mtu: 575", 6, "fabric.link.mtu", "575", "from 576 to 65535"),
    "unknown link class": (
        "  routing: ecmp",
        "  links: {spine: {rate: 1Gbps}}",
        8,
        "fabric.links.spine",
        "spine",
        "agg-core, edge-agg, host",
    ),
    "K above buffer": (
        "k: 100KB",
        "k: 5MB",
        7,
        "fabric.queue",
        "{kind: dctcp, k: 5MB, buffer: 4MB}",
        "k <= buffer",
    ),
    "unknown queue": (
        "kind: dctcp",
        "kind: drop-tail",
        7,
        "fabric.queue.kind",
        "drop-tail",
        "did you mean droptail? allowed: droptail, red, dctcp",
    ),
    "key of another queue": (
        "kind: dctcp",
        "kind: droptail",
        7,
        "fabric.queue.k",
        "100KB",
        "allowed: kind, buffer",
    ),
    "buffer below one packet": (
        "k: 100KB, buffer: 4MB",
        "k: 1KB, buffer: 8KB",
        7,
        "fabric.queue.buffer",
        "8000",
        "the largest MTU is 9000",
    ),
    "queue for nothing": (
        "  routing: ecmp",
        "  queues: {leaf0: {kind: droptail}}",
        8,
        "fabric.queues.leaf0",
        "leaf0",
        "a node such as core3",
    ),
    "unknown routing": (
        "routing: ecmp",
        "routing: dimension-order",
        8,
        "fabric.routing",
        "dimension-order",
        "allowed: ecmp, static",
    ),
    "torus axis of 1": (
        FABRIC,
        "  kind: torus\n  dims: [4, 1]\n",
        5,
        "fabric.dims",
        "[4, 1]",
        "every axis to be from 2 to 64",
    ),
    "mesh axis of 65": (
        FABRIC,
        "  kind: mesh\n  dims: [65, 4]\n",
        5,
        "fabric.dims",
        "[65, 4]",
        "every axis to be from 2 to 64",
    ),
    "one-dimensional torus": (
        FABRIC,
        "  kind: torus\n  dims: [16]\n",
        5,
        "fabric.dims",
        "[16]",
        "2 or 3 axes",
    ),
    "rails that nothing joins": (
        FABRIC,
        "  kind: rails\n  servers: 2\n  hosts_per_server: 4\n  pxn: false\n",
        3,
        "fabric",
        "",
        "pxn: true, or spines: 1 or more",
    ),
    "leaves that nothing joins": (
        FABRIC,
        "  kind: rails\n  servers: 4\n  hosts_per_server: 4\n  servers_per_leaf: 2\n",
        3,
        "fabric",
        "",
        "spines: 1 or more, to join 2 leaves",
    ),
    "no spines": (
        FABRIC,
        "  kind: leaf-spine\n  leaves: 4\n  spines: 0\n  hosts_per_leaf: 4\n",
        6,
        "fabric.spines",
        "0",
        "at least 1",
    ),
    "leaf-spine too large": (
        FABRIC,
        "  kind: leaf-spine\n  leaves: 128\n  spines: 2\n  hosts_per_leaf: 128\n",
        3,
        "fabric",
        "{kind: leaf-spine, leaves: 128",
        "leaves * hosts_per_leaf <= 4096",
    ),
    "graph link to nowhere": (
        FABRIC,
        "  kind: graph\n  nodes: [{name: a, kind: host}, {name: b, kind: host}]\n"
        "  links:\n  - ends: [a, c]\n",
        7,
        "fabric.links[0].ends",
        "c",
        "a node: a, b",
    ),
    "graph in two parts": (
        FABRIC,
        "  kind: graph\n  nodes: [{name: a, kind: host}, {name: r, kind: switch},"
        " {name: b, kind: host}]\n  links: [{ends: [a, r]}]\n",
        6,
        "fabric.links",
        "no path from a to b",
        "hosts that all reach each other",
    ),
    **{
        f"graph with a route {name}": (
            FABRIC,
            "  kind: graph\n  nodes: [{name: a, kind: host}, {name: r, kind: switch},"
            " {name: q, kind: switch}, {name: b, kind: host}]\n"
            "  links: [{ends: [a, r]}, {ends: [r, q]}, {ends: [q, b]}]\n"
            f"  routes: {routes}\n",
            7,
            key,
            found,
            allowed,
        )
        for name, routes, key, found, allowed in (
            ("of no node", "{c: {b: r}}", "fabric.routes.c", "c", "a node: a, b"),
            ("to no host", "{r: {q: q}}", "fabric.routes.r.q", "q", "another host: a, b"),
            ("to no neighbour", "{r: {b: b}}", "fabric.routes.r.b", "b", "a neighbour of r"),
            ("to who forwards nothing", "{r: {b: a}}", "fabric.routes.r.b", "a", "that forwards"),
            ("in a circle", "{q: {b: r}}", "fabric.routes.q.b", "q -> r -> q", "do not come back"),
        )
    },
    "graph node twice": (
        FABRIC,
        "  kind: graph\n  nodes: [{name: a, kind: host}, {name: a, kind: host}]\n"
        "  links: [{ends: [a, a]}]\n",
        5,
        "fabric.nodes[1].name",
        "a",
        "a name that no other node has",
    ),
    "graph node with a long name": (
        FABRIC,
        "  kind: graph\n  nodes: [{name: top-of-rack-1, kind: host}, {name: a, kind: host}]\n"
        "  links: [{ends: [a, a]}]\n",
        5,
        "fabric.nodes[0].name",
        "top-of-rack-1",
        "a letter and up to 9 more",
    ),
    "unknown congestion control": (
        "congestion_control: dctcp",
        "congestion_control: cubik",
        9,
        "transport.congestion_control",
        "cubik",
        "did you mean cubic? allowed: cubic, dctcp, bbr, reno",
    ),
    "enormous socket buffer": ("16MB", "16GB", 9, "transport.rcvbuf", "16GB", "at most 2147483647"),
    "unknown placement": ("linear", "round", 10, "placement", "round", "linear, random, strided"),
    "placement on no host": (
        "placement: linear",
        f"placement: {PLACED | {1: 'h99'}}",
        10,
        "placement[1]",
        "h99",
        "h0 to h15",
    ),
    "placement on a switch": (
        "placement: linear",
        f"placement: {PLACED | {0: 'core0'}}",
        10,
        "placement[0]",
        "core0",
        "expected a host",
    ),
    "placement of half": (
        "placement: linear",
        "placement: {0: h0}",
        10,
        "placement",
        "no host for rank 1",
        "one for each rank",
    ),
    "more ranks than hosts": (
        "ranks: 16",
        "ranks: 17",
        13,
        "workload.ranks",
        "17",
        "at most 16: the fabric has 16 hosts",
    ),
    "one rank": ("ranks: 16", "ranks: 1", 13, "workload.ranks", "1", "at least 2"),
    "no iterations": (
        "iterations: 2",
        "iterations: 0",
        14,
        "workload.iterations",
        "0",
        "at least 1",
    ),
    "no operations": (f"[{OPERATION}]", "[]", 15, "workload.operations", "[]", "at least 1"),
    "unknown operation": (
        "all_reduce",
        "allreduce",
        15,
        "workload.operations[0].kind",
        "allreduce",
        "did you mean all_reduce? allowed: all_reduce, all_to_all",
    ),
    "size in bits": ("8MB", "8Mb", 15, "workload.operations[0].size", "8Mb", "8MB (10^6 bytes)"),
    "size that does not split": (
        OPERATION,
        "{kind: all_to_all, size: 1000}",
        15,
        "workload.operations[0].size",
        "1000",
        "a multiple of ranks * bytes of the dtype = 64, such as 1024",
    ),
    "root that is no rank": (
        OPERATION,
        "{kind: broadcast, size: 8MB, root: 16}",
        15,
        "workload.operations[0].root",
        "16",
        "a rank from 0 to 15",
    ),
    "root of an all-reduce": (
        OPERATION,
        "{kind: all_reduce, size: 8MB, root: 1}",
        15,
        "workload.operations[0].root",
        "1",
        "unknown key",
    ),
    "incast of everybody": (
        OPERATION,
        "{kind: incast, size: 8MB, degree: 16}",
        15,
        "workload.operations[0].degree",
        "16",
        "at most ranks - 1 = 15",
    ),
    "permutation onto itself": (
        OPERATION,
        "{kind: permutation, size: 8MB, shift: 16}",
        15,
        "workload.operations[0].shift",
        "16",
        "no multiple of ranks",
    ),
    "send to itself": (
        OPERATION,
        "{kind: send_recv, size: 8MB, root: 1, peer: 1}",
        15,
        "workload.operations[0].peer",
        "1",
        "other than root",
    ),
    "unknown device": ("v100", "v1000", 16, "compute.device", "v1000", "did you mean v100?"),
    "custom device without figures": (
        "v100",
        "custom",
        16,
        "compute",
        "{device: custom}",
        "flops and memory_bandwidth",
    ),
    "snaplen without preambles": (
        "snaplen: 160",
        "snaplen: 113",
        17,
        "capture.snaplen",
        "113",
        "at least 114: 66 bytes of headers and the 48 of Gloo's preamble",
    ),
    "points not in a list": (
        "points: [hosts]",
        "points: hosts",
        17,
        "capture.points",
        "hosts",
        "a list in brackets",
    ),
    "unknown predictor": (
        "[alpha-beta]",
        "[alpha-bata]",
        18,
        "predict[0]",
        "alpha-bata",
        "did you mean alpha-beta? allowed: alpha-beta, astra-analytical",
    ),
    "scale below 1": ("scale: auto", "scale: 0", 19, "scale", "0", "1 (unscaled)"),
    "fault on no link": (
        "scale: auto",
        "faults: [{kind: loss, link: h0-h1, at: 1ms, value: 1%}]",
        19,
        "faults[0].link",
        "h0-h1",
        "two nodes with a link between them, such as h0-edge0-0",
    ),
    "fault at no time": (
        "scale: auto",
        "faults: [{kind: link-down, link: h0-edge0-0}]",
        19,
        "faults[0]",
        "{kind: link-down",
        "either `at` (a time) or `iteration`",
    ),
    "fault after the end": (
        "scale: auto",
        "faults: [{kind: link-down, link: h0-edge0-0, iteration: 2}]",
        19,
        "faults[0].iteration",
        "2",
        "at most 1",
    ),
    "loss of more than all": (
        "scale: auto",
        "faults: [{kind: loss, link: h0-edge0-0, at: 1ms, value: 120%}]",
        19,
        "faults[0].value",
        "120%",
        "above 0 and at most 1",
    ),
    "no interval": (
        "scale: auto",
        "counters: {interval: 0ns}",
        19,
        "counters.interval",
        "0ns",
        "more than 0",
    ),
    "memory for nothing": (
        "scale: auto",
        "virtual: {memory: 1MB}",
        19,
        "virtual.memory",
        "1MB",
        "auto, or at least 256MiB",
    ),
    "payload of no kind": (
        "scale: auto",
        "payload: none",
        19,
        "payload",
        "none",
        "expected checked or timing",
    ),
    "half a rank per process": (
        "scale: auto",
        "virtual: {ranks_per_process: 0.5}",
        19,
        "virtual.ranks_per_process",
        "0.5",
        "auto, or a whole number of at least 1",
    ),
    "no rank per process": (
        "scale: auto",
        "virtual: {ranks_per_process: 0}",
        19,
        "virtual.ranks_per_process",
        "0",
        "auto, or a whole number of at least 1",
    ),
    "name with a slash": ("name: good", "name: a/b", 1, "name", "a/b", "as in a file's name"),
    "negative seed": ("seed: 1", "seed: -1", 2, "seed", "-1", "at least 0"),
    "section as a value": ("{device: v100}", "v100", 16, "compute", "v100", "keys of its own"),
    "key twice": ("seed: 1", "name: again", 2, "name", "this key twice", "first on line 1"),
}
