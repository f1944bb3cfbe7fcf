"""Congestion control, queues, priority flow control, RoCE."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import ROOT, SEEDS, Bench, Experiment
from benchmarks.claims.rules import TIME, Above, AtLeast, AtMost, Within
from benchmarks.roce import beside_tcp, congestion
from testing.roce_streams import Flow, run_streams

_KHAN = "Khan et al., HOTI 2022, abstract"
_HPCC = "Li et al., SIGCOMM 2019 (HPCC), abstract"
_DCQCN = "Zhu et al., SIGCOMM 2015 (DCQCN)"

_LONG = """
name: long-flows
fabric:
  kind: flat
  hosts: 3
  link: {{rate: 100Gbps, delay: 5us, mtu: 9000}}
  queue: {{kind: dctcp, k: {k}, buffer: 8MB}}
transport: {{congestion_control: dctcp}}
workload: {{kind: collectives, ranks: 3, operations: [{{kind: incast, size: 100MB}}]}}
capture: {{points: []}}
predict: [packet]
"""
_PAYLOAD, _FRAME = 8948, 9038
"""Bytes at an MTU of 9000: payload beside headers with time stamps; the frame on the line."""


def _dctcp(bench: Bench) -> Mapping[str, Any]:
    """The share of the receiver's link that two long flows use, by K. C RTT / 7 is 35.7 KB."""
    used = {}
    for k in ("3KB", "36KB", "75KB"):
        (us,) = bench.durations_us(_LONG.format(k=k))
        used[k] = 2 * 100e6 / _PAYLOAD * _FRAME * 8 / 100e9 * 1e6 / us
    return {"used": used, "lost": used["75KB"] - used["3KB"]}


_RENO = """
name: buffer
fabric:
  kind: graph
  link: {{rate: 1Gbps, delay: 500us, mtu: 1500}}
  nodes: [{{name: a, kind: host}}, {{name: r, kind: switch}}, {{name: b, kind: host}}]
  links: [{{ends: [a, r], rate: 4Gbps}}, {{ends: [r, b], class: slow}}]
  queues: {{slow: {{kind: droptail, buffer: {buffer}}}}}
transport: {{congestion_control: reno}}
workload: {{kind: collectives, ranks: 2, operations: [{{kind: send_recv, size: 100MB}}]}}
capture: {{points: []}}
predict: [packet]
"""
_PRODUCT_BYTES = 250_000


def _buffers(bench: Bench) -> Mapping[str, Any]:
    """The use of a link by one flow of Reno, by the buffer over the bandwidth-delay product."""
    used = {}
    for name, share in (("whole", 1.0), ("half", 0.5), ("quarter", 0.25), ("least", 0.018)):
        (us,) = bench.durations_us(_RENO.format(buffer=round(share * _PRODUCT_BYTES)))
        used[name] = 100e6 / 1448 * 1538 * 8 / 1e9 * 1e6 / us
    return {"used": used}


_TREE = """
name: training
fabric: {{kind: fat-tree, k: 4, link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}, queue: {queue}}}
transport: {{congestion_control: {control}, min_rto: 5ms}}
workload: {{kind: collectives, ranks: 16, operations: [{{kind: {kind}, size: {size}}}]}}
capture: {{points: []}}
predict: [packet]
"""
_PAUSES = "{kind: lossless, xoff: 256KB, xon: 200KB, buffer: 32MB}"
_MARKED = "{kind: lossless, xoff: 256KB, xon: 200KB, buffer: 32MB, k: 100KB}"
_DROPS = "{kind: droptail, buffer: 1MB}"


def _tcp(bench: Bench) -> Mapping[str, Any]:
    """Collectives over lossless queues, with DCTCP as well, and with queues that drop; each draw of
    ports over the same with pauses alone."""
    found: dict[str, Any] = {"dctcp": {}, "drops": {}, "us": {}}
    for kind, size in (("all_reduce", "8MB"), ("all_to_all", "8MB"), ("incast", "1MB")):
        us = {
            name: bench.draws_us(_TREE.format(queue=queue, control=control, kind=kind, size=size))
            for name, queue, control in (
                ("pauses", _PAUSES, "cubic"),
                ("dctcp", _MARKED, "dctcp"),
                ("drops", _DROPS, "cubic"),
            )
        }
        found["us"][kind] = us["pauses"]
        for name in ("dctcp", "drops"):
            found[name][kind] = [a / b for a, b in zip(us[name], us["pauses"], strict=True)]
    return found


_SCHEMES = ("PFC", "DCQCN", "TIMELY", "HPCC")


def _scheme_texts(leaves: int, hosts: int) -> dict[str, tuple[str, str]]:
    """Scheme -> fabric, transport."""
    found = {}
    for scheme in congestion.schemes(200 * 70_000 // 8):
        for name in _SCHEMES:
            if scheme.name.startswith(name):
                queue = congestion.LOSSLESS.format(marks=scheme.marks)
                fabric = congestion.CLOS.format(
                    queue=queue, leaves=leaves, spines=max(1, hosts // 2), hosts=hosts
                )
                found[name] = (fabric, scheme.transport)
    return found


def _roce_workload(bench: Bench, name: str) -> Mapping[str, Any]:
    """A workload over RoCE by each scheme, over pauses alone, draw by draw: 4 leaves of 4 hosts. A
    draw in which a run is not valid is left out, and another one taken."""
    workload, all_reduce = congestion.workloads(16, 4)[name]
    us: dict[str, list[float]] = {scheme: [] for scheme in _SCHEMES}
    refused = []
    for seed in range(1, 3 * len(SEEDS)):
        if len(us["PFC"]) == len(SEEDS):
            break
        found = {}
        try:
            for scheme, (fabric, transport) in _scheme_texts(4, 4).items():
                run = congestion.RUN.format(
                    transport=transport,
                    workload=workload,
                    collectives=f"{{{congestion.ALL_TO_ALL}, all_reduce: {{{all_reduce}}}}}",
                    memory="auto",
                    ranks=16,
                )
                result = bench.result(f"seed: {seed}\n{fabric.lstrip()}{run}")
                rows = result["iterations" if len(result["collectives"]) > 1 else "collectives"]
                found[scheme] = rows[-1]["duration_ns"] / 1000
        except RuntimeError:
            refused.append(seed)
            continue
        for scheme, taken in found.items():
            us[scheme].append(taken)
    if len(us["PFC"]) < len(SEEDS):
        raise RuntimeError(f"{len(refused)} draws have a run that is not valid")
    return {
        "us": us["PFC"],
        "seeds_refused": len(refused),
        "over": {
            scheme: [a / b for a, b in zip(us[scheme], us["PFC"], strict=True)]
            for scheme in _SCHEMES[1:]
        },
    }


def _roce_all_reduce(bench: Bench) -> Mapping[str, Any]:
    return _roce_workload(bench, "all-reduce, 2-D")


def _roce_all_to_all(bench: Bench) -> Mapping[str, Any]:
    return _roce_workload(bench, "all-to-all")


def _roce_dctcp(bench: Bench) -> Mapping[str, Any]:
    """Collectives over RoCE with DCTCP's queue pairs and a step of 600 kB, over pauses alone, by
    the same draws: 4 leaves of 4 hosts."""
    window = 200 * 70_000 // 8
    ends = {one.name.partition(",")[0]: one.transport for one in congestion.schemes(window)}
    found: dict[str, Any] = {"us": {}, "over": {}}
    for name, kind in (("all-reduce, 2-D", "all_reduce"), ("all-to-all", "all_to_all")):
        workload, all_reduce = congestion.workloads(16, 4)[name]
        us = {}
        for scheme, marks in (("PFC", ""), ("DCTCP", congestion.STEP)):
            queue = congestion.LOSSLESS.format(marks=marks)
            fabric = congestion.CLOS.format(queue=queue, leaves=4, spines=2, hosts=4)
            text = fabric + congestion.RUN.format(
                transport=ends[scheme],
                workload=workload,
                collectives=f"{{{congestion.ALL_TO_ALL}, all_reduce: {{{all_reduce}}}}}",
                memory="auto",
                ranks=16,
            )
            us[scheme] = bench.draws_us(text)
        found["us"][kind] = us["PFC"]
        found["over"][kind] = [a / b for a, b in zip(us["DCTCP"], us["PFC"], strict=True)]
    return found


def _victim(bench: Bench) -> Mapping[str, Any]:
    """A flow of 2 MiB that shares links, and not the receiver, with an incast: by scheme over the
    same flow alone. Pauses and queue of the incast."""
    message = congestion.MESSAGE
    senders = [n for n in range(4, 16) if n % 4]
    longer = [Flow(source, 0, 64 * message, message) for source in senders]
    victim = Flow(4, 1, 8 * message, message, start_ns=2_000_000)
    found: dict[str, Any] = {"slower": {}, "pauses": {}, "us": {}}
    for scheme, (fabric, transport) in _scheme_texts(4, 4).items():
        text = fabric + congestion.STREAMS.format(transport=transport, memory="auto")
        bench.take(text)
        if scheme == "PFC":
            alone = run_streams(text, [victim], bench.runs).flows[-1].duration_ns
            found["us"]["alone"] = alone / 1000
        streams = run_streams(text, [*longer, victim], bench.runs)
        found["us"][scheme] = streams.flows[-1].duration_ns / 1000
        found["slower"][scheme] = streams.flows[-1].duration_ns / alone
        found["pauses"][scheme] = streams.result["summary"]["pauses"]
    return found


_PARKING = """
name: parking-lot
fabric:
  kind: graph
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}
  nodes: [{{name: s0, kind: switch}}, {{name: s1, kind: switch}}, {hosts}]
  links: [{{ends: [s0, s1]}}, {links}]
  queue: {{kind: lossless, xoff: 300KB, xon: 280KB, buffer: 16MB}}
"""


def _unfair(bench: Bench) -> Mapping[str, Any]:
    """Three flows by one port and one by another into the same receiver, pauses alone: the lone
    one's share over the mean of the three."""
    names = [f"h{n}" for n in range(5)]
    ends = {name: "s0" if name in ("h1", "h2", "h3") else "s1" for name in names}
    fabric = _PARKING.format(
        hosts=", ".join(f"{{name: {name}, kind: host}}" for name in names),
        links=", ".join(f"{{ends: [{name}, {switch}]}}" for name, switch in ends.items()),
    )
    transport = "{kind: roce, path_mtu: 4096, qp_timeout: 67ms, window: 2MB}"
    text = fabric + congestion.STREAMS.format(transport=transport, memory="auto")
    bench.take(text)
    flows = [
        Flow(source, 0, 32 * congestion.MESSAGE, congestion.MESSAGE) for source in (1, 2, 3, 4)
    ]
    streams = run_streams(text, flows, bench.runs)
    shares = [each / 1e9 for each in streams.shares_bps(200_000, 1_000_000)]
    return {"gbps": {str(n): share for n, share in enumerate(shares)},
            "lone_over_others": shares[3] / (sum(shares[:3]) / 3)}  # fmt: skip


def _deadlock(bench: Bench) -> Mapping[str, Any]:
    """Whether flows that turn round a ring of lossless switches stand still for good."""
    path = ROOT / "topologies" / "ring-deadlock.yaml"
    found = {}
    for name, more in (("pauses", []), ("drops", ["--set", f"fabric.queue={_DROPS}"])):
        bench.take(path.read_text() + name)
        out = bench.runs / f"ring-{name}"
        command = [sys.executable, "-m", "groundwire.cli", "run", str(path), "--kernel", "virtual"]
        if not (out / "verdict.txt").exists():
            command += ["--out", str(out), "--set", "predict=[]", *more]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            (out / "verdict.txt").write_text(done.stderr)
        found[name] = int("deadlock of lossless queues" in (out / "verdict.txt").read_text())
    return {"deadlock": found}


def _beside_tcp(bench: Bench) -> Mapping[str, Any]:
    """TCP's time over RoCE's, the same programs on a switch of 8 hosts, second iteration."""
    us: dict[str, dict[str, float]] = {}
    for name, (transport, collectives) in beside_tcp.COLUMNS.items():
        if name == "TCP, Gloo's own":
            continue
        result = bench.result(
            beside_tcp.SPEC.format(
                fabric=beside_tcp.SWITCH,
                transport=transport,
                workload=beside_tcp.COLLECTIVES,
                collectives=collectives,
            )
        )
        rows = [row for row in result["collectives"] if row["iteration"] == 1]
        us[name] = {
            f"{row['kind']}_{row['size_bytes'] // 1024}K": row["duration_ns"] / 1000 for row in rows
        }
    return {"over": {key: us["TCP"][key] / time for key, time in us["RoCE"].items()}}


_JOBS = """
name: cassini
fabric: {{kind: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 4,
  link: {{rate: 50Gbps, delay: 500ns, mtu: 9000}}, links: {{leaf-spine: {{rate: 100Gbps}}}},
  queue: {{kind: dctcp, k: 100KB, buffer: 4MB}}}}
transport: {{congestion_control: dctcp}}
jobs: {jobs}
collectives: {{backend: programs, all_reduce: {{algorithm: ring}}}}
capture: {{points: []}}
predict: []
"""
_JOB = """
  - name: {name}
    start: {start}us
    placement: {{{placement}}}
    workload:
      kind: layers
      ranks: 4
      iterations: 8
      passes: 1
      parallelism: data
      overlap: false
      layers: [{{name: all, forward: {{compute: 500us}}, input_gradient: {{compute: 1ns}},
        weight_gradient: {{compute: 500us, collective: all_reduce, size: 4MB}}}}]"""


def _cassini(bench: Bench) -> Mapping[str, Any]:
    """Two jobs whose rings cross the same link, half of a period communicating: posted together,
    and half a period apart."""
    us: dict[str, float] = {}
    marks: dict[str, int] = {}
    # Neighbours of a ring are on different leaves: each step crosses the spine four times.
    halves = {"one": (0, 4, 1, 5), "two": (2, 6, 3, 7)}
    for name, late in (("together", 0), ("apart", 1000)):
        jobs = "".join(
            _JOB.format(
                name=job,
                start=late * number,
                placement=", ".join(f"{rank}: h{host}" for rank, host in enumerate(hosts)),
            )
            for number, (job, hosts) in enumerate(halves.items())
        )
        result = bench.result(_JOBS.format(jobs=jobs))
        us[name] = median(row["duration_ns"] / 1000 for row in result["iterations"])
        marks[name] = sum(
            json.loads(line)["ecn_marks"] or 0
            for line in (bench.run(_JOBS.format(jobs=jobs)) / "links.jsonl").open()
        )
    return {"us": us, "marks": marks, "faster": us["together"] / us["apart"]}


DCTCP = Experiment("dctcp-threshold", "packet engine", _dctcp)
BUFFERS = Experiment("sizing-buffers", "packet engine", _buffers)
TCP = Experiment("training-tcp", "packet engine", _tcp)
ALL_REDUCE = Experiment("roce-all-reduce", "virtual kernel", _roce_all_reduce)
ALL_TO_ALL = Experiment("roce-all-to-all", "virtual kernel", _roce_all_to_all)
ROCE_DCTCP = Experiment("roce-dctcp", "packet engine", _roce_dctcp)
VICTIM = Experiment("pfc-victim", "virtual kernel", _victim)
UNFAIR = Experiment("pfc-unfair", "virtual kernel", _unfair)
DEADLOCK = Experiment("pfc-deadlock", "virtual kernel", _deadlock)
BESIDE = Experiment("roce-beside-tcp", "virtual kernel", _beside_tcp)
CASSINI = Experiment("cassini", "virtual kernel", _cassini)

_CLOS = "4 leaves of 4 hosts of its Clos (8 of 16), 200 Gb/s, half upwards"
_LITTLE = 0.1


def _little(experiment: Experiment, name: str, words: str, scheme: str) -> Claim:
    return Claim(
        f"roce-{name}-{scheme.lower()}",
        f"{scheme} has little impact on {words} over lossless queues",
        _KHAN,
        "“little impact”; values per scheme were not found",
        "a tenth at most",
        setting=_CLOS,
        experiment=experiment,
        shows=f"{{over[{scheme}]:.3f}} times pauses alone, which take {{us:,.0f}} us; "
        "draws left out, as a run was not valid: {seeds_refused}",
        rules=(Within(f"over.{scheme}", 1, _LITTLE),),
        earlier="[a measurement](../benchmarks/results/2026-11-24-roce.md)",
    )


CLAIMS = (
    *(_little(ALL_REDUCE, "all-reduce", "a 2-D all-reduce of 8 MiB", s) for s in _SCHEMES[1:]),
    *(_little(ALL_TO_ALL, "all-to-all", "an all-to-all of 8 MiB", s) for s in _SCHEMES[1:]),
    *(
        Claim(
            f"tcp-lossless-{kind.replace('_', '-')}",
            f"Over TCP DCTCP has little impact on {words} over lossless queues",
            _KHAN,
            "“little impact”, of RoCE",
            "a tenth at most",
            setting="k=4 fat-tree, 16 hosts, 100 Gb/s",
            experiment=TCP,
            shows=f"{{dctcp[{kind}]:.3f}} times pauses alone",
            rules=(Within(f"dctcp.{kind}", 1, _LITTLE),),
            conditions="TCP in place of RoCE, of which it is said",
        )
        for kind, words in (("all_reduce", "an all-reduce"), ("all_to_all", "an all-to-all"))
    ),
    *(
        Claim(
            f"roce-dctcp-{kind.replace('_', '-')}",
            f"DCTCP has little impact on {words} over RoCE",
            _KHAN,
            "“little impact”",
            "a tenth at most",
            setting=_CLOS + "; DCTCP of queue pairs, a step of 600 kB",
            experiment=ROCE_DCTCP,
            shows=f"{{over[{kind}]:.3f}} times pauses alone ({{us[{kind}]:,.0f}} us)",
            rules=(Within(f"over.{kind}", 1, _LITTLE),),
        )
        for kind, words in (("all_reduce", "a 2-D all-reduce"), ("all_to_all", "an all-to-all"))
    ),
    Claim(
        "roce-beside-tcp",
        "RoCE is faster than TCP",
        "requirements of the mission's systems (compare RoCE and TCP)",
        "no figure",
        setting="the same programs on a switch of 8 hosts, 100 Gb/s: all-reduce, all-to-all",
        experiment=BESIDE,
        shows="TCP takes {over[all_reduce_64K]:.2f}, {over[all_reduce_1024K]:.2f}, "
        "{over[all_reduce_8192K]:.2f} and {over[all_to_all_64K]:.2f}, "
        "{over[all_to_all_1024K]:.2f}, {over[all_to_all_8192K]:.2f} times as long "
        "(64 KiB, 1 MiB, 8 MiB)",
        rules=tuple(
            AtLeast(f"over.{kind}_{size}K", 1.0)
            for kind in ("all_reduce", "all_to_all")
            for size in (64, 1024, 8192)
        ),
        conditions="processors take no time here, and what RoCE saves them is not in the figure",
    ),
    Claim(
        "pfc-victim",
        "Pauses block flows that have nothing to do with a congested port (head-of-line blocking)",
        _DCQCN,
        "no figure looked up",
        setting=_CLOS + "; a flow of 2 MiB beside a long incast of 9 hosts",
        experiment=VICTIM,
        shows="{slower[PFC]:.1f} times as long as alone ({us[alone]:,.0f} us)",
        rules=(AtLeast("slower.PFC", 2),),
    ),
    Claim(
        "pfc-victim-control",
        "Congestion control frees such flows",
        _DCQCN,
        "no figure looked up",
        setting=_CLOS + "; the same flow",
        experiment=VICTIM,
        shows="DCQCN {slower[DCQCN]:.2f}, TIMELY {slower[TIMELY]:.2f}, HPCC {slower[HPCC]:.2f} "
        "times as long as alone",
        rules=tuple(AtMost(f"slower.{scheme}", 2) for scheme in _SCHEMES[1:]),
    ),
    Claim(
        "pfc-pauses",
        "Congestion control needs fewer pauses in an incast",
        _KHAN,
        "few or no PAUSE by its schemes; values were not found",
        setting=_CLOS + "; a long incast of 9 hosts",
        experiment=VICTIM,
        shows="{pauses[PFC]:,} by pauses alone; DCQCN {pauses[DCQCN]:,}, "
        "TIMELY {pauses[TIMELY]:,}, HPCC {pauses[HPCC]:,}",
        rules=tuple(Above("pauses.PFC", f"pauses.{scheme}") for scheme in _SCHEMES[1:]),
    ),
    Claim(
        "pfc-unfair",
        "Pauses share by port, not by flow: a flow alone at its port gets more",
        _DCQCN,
        "no figure looked up",
        "3 times with three flows at the other port",
        setting="two switches; three flows by one port and one by another to a host, 100 Gb/s",
        experiment=UNFAIR,
        shows="{lone_over_others:.2f} times",
        rules=(Within("lone_over_others", 3, TIME),),
    ),
    Claim(
        "pfc-deadlock",
        "Lossless queues can deadlock where paths turn round a ring; queues that drop do not",
        _DCQCN,
        "no figure",
        setting="five switches in a ring (`ring-deadlock.yaml`), 40 MB a host",
        experiment=DEADLOCK,
        shows="runs that stand still for good: {deadlock[pauses]} of 1, and {deadlock[drops]} of 1",
        rules=(AtLeast("deadlock.pauses", 1), AtMost("deadlock.drops", 0)),
    ),
    Claim(
        "dctcp-threshold",
        "DCTCP keeps a link full with K above C RTT / 7",
        "Alizadeh et al., SIGCOMM 2010",
        "K > C RTT / 7",
        "36 KB for 100 Gb/s and 20 us",
        setting="two flows of 100 MB to one host, start and end included",
        experiment=DCTCP,
        shows="{used[3KB]:.1%} with 3 KB, {used[36KB]:.1%} with 36 KB, {used[75KB]:.1%} with 75 KB",
        rules=(AtLeast("used.36KB", 0.97), AtLeast("used.75KB", 0.97), AtMost("used.3KB", 0.95)),
    ),
    Claim(
        "sizing-buffers",
        "A buffer of one bandwidth-delay product keeps a link full for a flow of Reno",
        "Appenzeller et al., SIGCOMM 2004",
        "one bandwidth-delay product",
        setting="a flow of 100 MB at 1 Gb/s, round trip 2 ms, start and end included",
        experiment=BUFFERS,
        shows="{used[whole]:.1%} with one, {used[half]:.1%} with half, {used[quarter]:.1%} with a "
        "quarter",
        rules=(AtLeast("used.whole", 0.97),),
    ),
    Claim(
        "no-buffer",
        "With no buffer a flow of Reno uses 3/4 of the link",
        "Appenzeller et al., SIGCOMM 2004",
        "no figure",
        "3/4: the window saws between half and whole",
        setting="the same, a buffer of 3 packets",
        experiment=BUFFERS,
        shows="{used[least]:.1%}",
        rules=(Within("used.least", 0.75, TIME),),
    ),
    Claim(
        "hpcc-fct",
        "HPCC takes up to 95% off flow completion times beside DCQCN and TIMELY",
        _HPCC,
        "up to 95%",
        untested="its 320 hosts under WebSearch for seconds are beyond an emulation; queues and "
        "victims are in docs/roce-congestion.md",
    ),
    Claim(
        "cassini",
        "Shifting jobs that share a link against each other makes iterations faster, 1.6 times",
        "CASSINI, NSDI 2024",
        "1.6 times mean, 2.5 times tail, 33 times fewer ECN marks, 24 servers",
        setting="two jobs of 4 hosts whose rings cross one link of 100 Gb/s; half of a period is "
        "computing; posted together and 1 ms apart",
        experiment=CASSINI,
        shows="{faster:.2f} times ({us[together]:,.0f} and {us[apart]:,.0f} us); marks "
        "{marks[together]:,} and {marks[apart]:,}",
        rules=(AtLeast("faster", 1.05),),
        conditions="two equal jobs, shifted by hand",
    ),
)
