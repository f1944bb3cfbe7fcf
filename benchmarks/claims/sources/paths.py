"""Claims of sprays, flowlets, and transports that bear reordering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment
from benchmarks.claims.rules import TIME, Above, AtLeast, AtMost, Within

_ALL_TO_ALL = """
name: paths
fabric: {{kind: fat-tree, k: 4, link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}},
  queue: {{kind: droptail, buffer: 4MB}}, routing: {routing}}}
transport: {{kind: roce, path_mtu: 4096, loss_recovery: {recovery}}}
workload: {{kind: collectives, ranks: 16, operations: [{{kind: all_to_all, size: 4MB}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
capture: {{points: []}}
predict: []
"""
_ROUTINGS = {
    "ecmp": "ecmp",
    "spray": "{kind: spray, choose: random}",
    "flowlet": "{kind: flowlet, gap: 50us}",
}


def _sprays(bench: Bench) -> Mapping[str, Any]:
    """Microseconds of an all-to-all, by recovery and routing."""
    return {
        name: {
            routing: bench.draws_us(_ALL_TO_ALL.format(routing=text, recovery=recovery))
            for routing, text in _ROUTINGS.items()
        }
        for name, recovery in (("selective", "selective-repeat"), ("go_back", "go-back-n"))
    }


_PATH = """
name: losses
fabric: {{kind: flat, hosts: 2, link: {{rate: 100Gbps, delay: 1us, mtu: 4200}},
  queue: {{kind: droptail, buffer: 64MB}}}}
transport: {{kind: roce, path_mtu: 4096, qp_timeout: 131us, loss_recovery: {recovery}}}
workload: {{kind: collectives, ranks: 2, operations: [{{kind: broadcast, size: 64MiB}}]}}
collectives: {{backend: programs, broadcast: {{algorithm: tree}}}}
capture: {{points: []}}
predict: []
{faults}
"""
_LOSS = "faults: [{kind: loss, link: h0-s0, at: 0ns, value: 1%}]"


def _losses(bench: Bench) -> Mapping[str, Any]:
    """The share of its goodput that a message keeps with 1% lost."""
    found = {}
    for name, recovery in (("selective", "selective-repeat"), ("go_back", "go-back-n")):
        clean, lossy = (
            bench.draws_us(_PATH.format(recovery=recovery, faults=faults)) for faults in ("", _LOSS)
        )
        found[name] = [a / b for a, b in zip(clean, lossy, strict=True)]
    return {"kept": found}


_CLOS = """
name: flaps
fabric: {{kind: leaf-spine, leaves: 2, spines: 4, hosts_per_leaf: 2,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}, queue: {{kind: droptail, buffer: 4MB}}}}
transport: {transport}
workload: {{kind: collectives, ranks: 4, operations: [{{kind: all_to_all, size: 16MB}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
capture: {{points: []}}
predict: []
{faults}
"""
_HOLE = "faults: [{kind: loss, link: leaf1-spine0, at: 200us, duration: 1ms, value: 100%}]"


def _flaps(bench: Bench) -> Mapping[str, Any]:
    """Milliseconds that a link costs an all-to-all that carries nothing for a millisecond."""
    found = {}
    transports = {"mrc": "{kind: mrc}", "go_back": "{kind: roce, path_mtu: 4096}"}
    for name, transport in transports.items():
        clean, flapped = (
            bench.draws_us(_CLOS.format(transport=transport, faults=faults))
            for faults in ("", _HOLE)
        )
        found[name] = [(b - a) / 1000 for a, b in zip(clean, flapped, strict=True)]
    return {"costs_ms": found, "worst_ms": {name: max(each) for name, each in found.items()}}


_PLANES = """
name: planes
fabric: {{kind: rails, servers: 4, hosts_per_server: 2, servers_per_leaf: 2, spines: 4,
  planes: {planes}, link: {{rate: {rate}Gbps, delay: 500ns, mtu: 4200}},
  links: {{scale-up: {{rate: 1600Gbps, delay: 100ns}}}},
  queue: {{kind: dctcp, k: {rate}KB, buffer: {buffer}KB, trim: true}}, routing: source}}
transport: {{kind: mrc}}
workload: {{kind: collectives, ranks: 8, operations: [{{kind: all_to_all, size: 128MB}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
capture: {{points: []}}
predict: []
{faults}
"""
_PORTS = {1: "h0-leaf0", 8: "nic0-0-leaf0p0"}
"""A port of the first host's network card, by how many it has."""


def _planes(bench: Bench) -> Mapping[str, Any]:
    """Microseconds of an all-to-all by how many planes share 800 Gb/s: all well, and with a port of
    a network card that carries nothing for half a millisecond, or to the end."""

    def taken_us(planes: int, faults: str = "") -> list[float]:
        rate = 800 // planes
        return bench.draws_us(
            _PLANES.format(planes=planes, rate=rate, buffer=4 * rate, faults=faults)
        )

    def dead(planes: int, time: str) -> str:
        return f"faults: [{{kind: loss, link: {_PORTS[planes]}, {time}, value: 100%}}]"

    found: dict[str, Any] = {}
    for name, planes in (("one", 1), ("eight", 8)):
        well, flapped = (
            taken_us(planes),
            taken_us(planes, dead(planes, "at: 50us, duration: 500us")),
        )
        found[name] = {"well": well, "costs": [b - a for a, b in zip(well, flapped, strict=True)]}
    gone = taken_us(8, dead(8, "at: 50us, duration: 20ms"))
    found["gone"] = [b / a for a, b in zip(found["eight"]["well"], gone, strict=True)]
    found["parity"] = [
        b / a for a, b in zip(found["one"]["well"], found["eight"]["well"], strict=True)
    ]
    return found


_RING = """
name: queue-pairs
fabric: {{kind: leaf-spine, leaves: 4, spines: 4, hosts_per_leaf: 4,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}, queue: {{kind: droptail, buffer: 32MB}},
  routing: {routing}}}
placement: strided
transport: {{kind: roce, path_mtu: 4096, connections: {connections}, spread: {spread}}}
workload: {{kind: collectives, ranks: 16, operations: [{{kind: all_reduce, size: 16MB}}]}}
collectives: {{backend: programs, all_reduce: {{algorithm: ring}}}}
capture: {{points: []}}
predict: []
"""
_E_ECMP = "{kind: ecmp, fields: [addresses, queue-pair]}"


def _queue_pairs(bench: Bench) -> Mapping[str, Any]:
    """Microseconds of a ring by ECMP with one queue pair of two ranks, and by E-ECMP with more, by
    how messages go by them; and how much faster 16 of them are, split."""
    one = bench.draws_us(_RING.format(routing="ecmp", connections=1, spread="split"))
    found: dict[str, dict[str, list[float]]] = {
        spread: {
            f"qps{n}": bench.draws_us(_RING.format(routing=_E_ECMP, connections=n, spread=spread))
            for n in (4, 16)
        }
        for spread in ("split", "messages")
    }
    gains = [a / b - 1 for a, b in zip(one, found["split"]["qps16"], strict=True)]
    return {"ecmp": one, **found, "faster": gains, "most": max(gains), "least": min(gains)}


def _sockets(bench: Bench) -> Mapping[str, Any]:
    """Microseconds of the same ring over TCP by ECMP, by how many sockets two ranks have, which
    messages are split over; and how much faster 16 of them are."""
    found = {
        f"sockets{n}": bench.draws_us(
            _RING.format(routing="ecmp", connections=n, spread="split").replace(
                "kind: roce, path_mtu: 4096", "kind: tcp"
            )
        )
        for n in (1, 2, 4, 8, 16)
    }
    gains = [a / b - 1 for a, b in zip(found["sockets1"], found["sockets16"], strict=True)]
    return {**found, "faster": gains, "most": max(gains), "least": min(gains)}


_SOCKETS = Experiment("sockets", "the packet engine", _sockets)
_QUEUE_PAIRS = Experiment("queue-pairs", "the packet engine", _queue_pairs)
_RINGS = (
    "4 leaves, 4 spines, 16 ranks, each on another leaf than its neighbours in the ring, 100 Gb/s"
)
_FLAPS = Experiment("flaps", "the packet engine", _flaps)
_OF_PLANES = Experiment("planes", "the packet engine", _planes)
_SPRAYS = Experiment("sprays", "the packet engine", _sprays)
_LOSSES = Experiment("losses", "the packet engine", _losses)
_SETTING = "k=4 fat-tree, 16 ranks, 100 Gb/s, a direct all-to-all of 4 MB over RoCE"

CLAIMS = (
    Claim(
        "meta-e-ecmp",
        "E-ECMP with more queue pairs makes all-reduces up to 40% faster",
        "Meta, SIGCOMM 2024",
        "up to 40%",
        setting=f"{_RINGS}, a ring all-reduce of 16 MB over RoCE",
        experiment=_QUEUE_PAIRS,
        shows="{ecmp:.0f} us by ECMP with one queue pair, {split[qps4]:.0f} us by E-ECMP with 4, "
        "{split[qps16]:.0f} us with 16; 16 are faster by {least:.0%} to {most:.0%}",
        conditions="16 queue pairs, split, and a ring that crosses leaves at each step; with 4 not "
        "in each draw",
        rules=(Above("ecmp", "split.qps16"),),
    ),
    Claim(
        "fast-socket-flows",
        "Several flows of two ranks reach more throughput than one",
        "Google, NCCL Fast Socket",
        "in words",
        setting=f"{_RINGS}, a ring all-reduce of 16 MB over TCP by ECMP; no host has a core that "
        "limits a socket",
        experiment=_SOCKETS,
        shows="{sockets1:.0f} us with one socket, {sockets4:.0f} us with 4, {sockets16:.0f} us "
        "with 16; 16 are faster by {least:.0%} to {most:.0%}",
        conditions="16 sockets, split, and a ring that crosses leaves at each step",
        rules=(Above("sockets1", "sockets16"),),
    ),
    Claim(
        "meta-round-robin",
        "Whole messages by turns of queue pairs beat messages that are split over them",
        "Meta, SIGCOMM 2024",
        "in words",
        setting=f"{_RINGS}, a ring all-reduce of 16 MB over RoCE, in which a rank has one message "
        "of 1 MB to send at a time",
        experiment=_QUEUE_PAIRS,
        shows="{messages[qps16]:.0f} us by turns of 16, {split[qps16]:.0f} us split",
        rules=(Above("split.qps16", "messages.qps16"),),
    ),
    Claim(
        "mrc-flaps",
        "Connections of many paths ride out a link that fails, where those of one path wait",
        "Araujo et al., arXiv 2605.04333",
        "in words",
        setting="2 leaves, 4 spines, 4 ranks, 100 Gb/s, a direct all-to-all of 16 MB; a link to a "
        "leaf loses all for 1 ms, and no route is computed anew",
        experiment=_FLAPS,
        shows="MRC's worst draw ends {worst_ms[mrc]:.2f} ms later, go-back-N's "
        "{worst_ms[go_back]:.2f} ms",
        rules=(AtMost("worst_ms.mrc", 0.5), AtLeast("worst_ms.go_back", 1.0)),
    ),
    Claim(
        "mrc-planes",
        "Eight planes carry as much as one of their rate together, and a network card that loses a "
        "port goes on by the others",
        "Araujo et al., arXiv 2605.04333",
        "in words",
        derived="8/7 of the time where one of eight ports is gone for good; with one port nothing "
        "is carried meanwhile",
        setting="2 leaves and 4 spines a plane, 8 hosts, 800 Gb/s a host by one port or by 8 of "
        "100 Gb/s, a direct all-to-all of 128 MB over MRC, paths by `source`; a port of one host "
        "loses all for 0.5 ms, or to the end",
        experiment=_OF_PLANES,
        shows="{one[well]:.0f} us with one plane, {eight[well]:.0f} us with eight; the 0.5 ms cost "
        "{one[costs]:.0f} us with one, {eight[costs]:.0f} us with eight; {gone:.2f} times as long "
        "with one of eight ports gone for good",
        rules=(
            Within("parity", 1.0, TIME),
            AtLeast("one.costs", 500),
            AtMost("eight.costs", 300),
            Within("gone", 8 / 7, TIME),
        ),
    ),
    Claim(
        "reps-sprays",
        "Packets that are sprayed balance better than flows that are hashed",
        "REPS, arXiv 2407.21625",
        "in words",
        setting=f"{_SETTING}, selective repeat",
        experiment=_SPRAYS,
        shows="{selective[ecmp]:.0f} us by ECMP, {selective[spray]:.0f} us by a random spray",
        rules=(Above("selective.ecmp", "selective.spray"),),
    ),
    Claim(
        "conweave-reordering",
        "Sprays make RoCE slower, where network cards take reordering for losses",
        "ConWeave, SIGCOMM 2023",
        "in words",
        setting=f"{_SETTING}, go-back-N",
        experiment=_SPRAYS,
        shows="{go_back[ecmp]:.0f} us by ECMP, {go_back[spray]:.0f} us by a random spray",
        rules=(Above("go_back.spray", "go_back.ecmp"),),
    ),
    Claim(
        "conweave-flowlets",
        "Flowlets are rare in RDMA's traffic, and balance it worse than sprays do",
        "ConWeave, SIGCOMM 2023",
        "in words",
        setting=f"{_SETTING}, gaps of 50 us, selective repeat",
        experiment=_SPRAYS,
        shows="{selective[flowlet]:.0f} us by flowlets, {selective[spray]:.0f} us by a spray",
        rules=(Above("selective.flowlet", "selective.spray"),),
    ),
    Claim(
        "irn-losses",
        "RoCE needs no lossless fabric, where it sends again only what is lost",
        "IRN, SIGCOMM 2018",
        "in words",
        setting="one path of 100 Gb/s, 64 MiB, 1% of packets lost, time-outs of 131 us",
        experiment=_LOSSES,
        shows="{kept[selective]:.0%} of goodput kept; with go-back-N {kept[go_back]:.0%}",
        conditions="time-outs set to 131 us; with the default, 1 ms, one draw of eight kept 83%",
        rules=(AtLeast("kept.selective", 0.9), AtMost("kept.go_back", 0.9)),
    ),
)
