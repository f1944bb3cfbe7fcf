"""Switches that reduce (SHArP and SHARP)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import in_network
from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment
from benchmarks.claims.rules import BYTES, TIME, Above, AtLeast, AtMost, Within

_2016 = "Graham et al., COMHPC 2016 (SHArP), abstract"
_2017 = "SHArP 2017, abstract"
_2020 = "Graham et al., ISC 2020 (SAT), abstract"
_DOCS = "NVIDIA SHARP, Rev 3.13"
_SLIDES = "NVIDIA, slides on SHARP (HDR, Quantum)"


def _latency(bench: Bench, hosts: int) -> Mapping[str, Any]:
    asked = [(s, p) for s in in_network.SMALL for p in in_network.ALGORITHMS.values()]
    bench.take(in_network.spec(hosts, asked))
    found = in_network.latency(hosts, bench.runs)
    return {
        "us_8": found["8"]["us"]["in the switches"],
        "us_4096": found["4096"]["us"]["in the switches"],
        "gain_8": found["8"]["ratio"]["recursive doubling"],
        "gain_4096": found["4096"]["ratio"]["recursive doubling"],
        "ring_8": found["8"]["ratio"]["ring"],
    }


def _small(bench: Bench) -> Mapping[str, Any]:
    return _latency(bench, 16)


def _large(bench: Bench) -> Mapping[str, Any]:
    return {f"n{hosts}": _latency(bench, hosts) for hosts in (64, 128)}


def _bytes(bench: Bench) -> Mapping[str, Any]:
    for row in ("streaming", "low latency", "ring"):
        bench.take(f"{row} {in_network.BYTES} {in_network.FEW_BYTES}")
    found = in_network.host_bytes(bench.runs)
    names = {"streaming": "streaming", "low latency": "low_latency", "ring": "ring"}
    return {
        names[name]: {"sent": row["sent / S"], "received": row["received / S"]}
        for name, row in found.items()
    }


def _modes(bench: Bench) -> Mapping[str, Any]:
    bench.take(str(in_network.SIZES))
    found = in_network.modes(bench.runs)
    return {
        "of_goodput": found["16777216"]["of goodput"],
        "ring_1MB": found["1048576"]["ring"] / found["1048576"]["streaming"],
        "ring_4MB": found["4194304"]["ring"] / found["4194304"]["streaming"],
        "ring_64KB": found["65536"]["ring"] / found["65536"]["streaming"],
        "small_low_over_stream": found["8"]["streaming"] / found["8"]["low latency"],
        "large_stream_over_low": found["524288"]["low latency"] / found["524288"]["streaming"],
    }


def _jobs(bench: Bench) -> Mapping[str, Any]:
    for rule in in_network.RULES:
        bench.take(in_network.jobs_spec(rule))
    found = in_network.jobs(bench.runs)
    return {
        rule.replace("-", "_"): max(max(job["streams"]) for job in jobs.values())
        for rule, jobs in found.items()
    }


_SCRIPT = Path(__file__).parents[1] / "resnet_ddp.py"
_BUCKET, _SMALL_BUCKET = 1_638_400, 16_384
"""DDP's 25 MiB, a sixteenth, and a hundredth of that."""
_DDP = """
name: resnet-ddp
fabric:
  kind: leaf-spine
  leaves: 4
  spines: 4
  hosts_per_leaf: 4
  link: {{rate: 6250Mbps, delay: 500ns, mtu: 1500}}
workload: {{kind: command, ranks: 16, argv: [python, {script}, "{bucket}"], charge: true}}
compute: {{device: v100, slowdown: 256}}
aggregation: {{mode: streaming}}
collectives: {{backend: programs, all_reduce: {program}}}
capture: {{points: []}}
predict: [packet]
"""
_PROGRAMS = {
    "switches": "{algorithm: aggregation}",
    "ring": "{algorithm: ring}",
    "tree": "{algorithm: double-binary-tree, chunks: 8}",
}


def _resnet(bench: Bench, bucket_bytes: int) -> Mapping[str, Any]:
    """The second step of a DDP script whose gradients go by switches, rings and trees; its
    computing, and how far `packet` is off at each bucket."""
    bench.runs.mkdir(parents=True, exist_ok=True)
    (bench.runs / _SCRIPT.name).write_text(_SCRIPT.read_text())
    us: dict[str, float] = {}
    errors, computed = {}, 0.0
    for name, program in _PROGRAMS.items():
        text = _DDP.format(script=_SCRIPT.name, bucket=bucket_bytes, program=program)
        result = bench.result(text)
        us[name] = result["iterations"][-1]["duration_ns"] / 1000
        computed = result["iterations"][-1]["compute_ns"] / 1000
        rows = [row for row in result["collectives"] if row["kind"] == "all_reduce"]
        errors[name] = fmean(abs(row["predicted"]["packet"]["error"]) for row in rows)
    gain = {name: us[name] / us["switches"] for name in ("ring", "tree")}
    return {"us": us, "gain": gain, "compute_us": computed, "packet_error": errors}


_LAYERS = """
name: resnet-layers
fabric:
  kind: leaf-spine
  leaves: 4
  spines: 4
  hosts_per_leaf: 4
  link: {{rate: 6250Mbps, delay: 500ns, mtu: 1500}}
workload:
  kind: layers
  ranks: 16
  passes: 1
  parallelism: data
  layers:
{layers}
aggregation: {{mode: streaming}}
collectives: {{backend: programs, all_reduce: {program}}}
capture: {{points: []}}
predict: [packet]
"""
_RESNET_BUCKETS = ((5.9e6, 0.67), (6.55e6, 0.185), (6.55e6, 0.085), (6.55e6, 0.06))
"""Weights in DDP's buckets of 25 MiB, and their parts of the computing, from the network's input
on: stages have 0.22, 1.22, 7.1, 15.0 and 2.05 million weights and 0.8, 1.03, 1.47, 0.81 and 0.002
billion multiplications (He et al., CVPR 2016, table 1, ResNet-50)."""
_COMPUTING = {"x0_5": 0.5, "x1": 1.0, "x2": 2.0, "x4": 4.0, "x8": 8.0}


def _computing(bench: Bench) -> Mapping[str, Any]:
    """A step's time by rings and trees over that by switches, by how long computing takes: times
    what a ring's all-reduce of all gradients does on such links."""
    whole_ns = 2 * sum(4 * weights / 16 for weights, _ in _RESNET_BUCKETS) * 15 / 16 * 8 / 6.25
    found: dict[str, Any] = {name: {} for name in ("ring", "tree")}
    for key, times in _COMPUTING.items():
        rows = []
        for number, (weights, part) in enumerate(_RESNET_BUCKETS):
            third = round(times * whole_ns * part / 3)
            size = round(4 * weights / 16 / 64) * 64
            gradient = f"{{compute: {third}ns, collective: all_reduce, size: {size}}}"
            rows.append(
                f"    - {{name: bucket{number}, forward: {{compute: {third}ns}}, "
                f"input_gradient: {{compute: {third}ns}}, weight_gradient: {gradient}}}"
            )
        us = {
            name: bench.draws_us(_LAYERS.format(layers="\n".join(rows), program=program))
            for name, program in _PROGRAMS.items()
        }
        for name, gains in found.items():
            pairs = zip(us[name], us["switches"], strict=True)
            gains[key] = [a / b for a, b in pairs]
    return {"gain": found}


SMALL = Experiment("sharp-16", "virtual kernel", _small)
LARGE = Experiment("sharp-128", "virtual kernel", _large)
HOST_BYTES = Experiment("sharp-bytes", "virtual kernel", _bytes)
MODES = Experiment("sharp-modes", "virtual kernel", _modes)
JOBS = Experiment("sharp-jobs", "virtual kernel", _jobs)
RESNET = Experiment("sharp-ddp-large", "virtual kernel", lambda bench: _resnet(bench, _BUCKET))
RESNET_SMALL = Experiment(
    "sharp-ddp-small", "virtual kernel", lambda bench: _resnet(bench, _SMALL_BUCKET)
)
COMPUTING = Experiment("sharp-computing", "packet engine", _computing)
_HOSTS = "hosts spend no time on software here, which the published times have"

CLAIMS = (
    Claim(
        "sharp-8",
        "An all-reduce of 8 bytes in the switches takes 2.1 times less",
        _2016,
        "6.01 to 2.83 us on 128 hosts",
        setting="fat-trees of 64 and 128 hosts, 100 Gb/s, beside recursive doubling",
        experiment=LARGE,
        shows="{n64[gain_8]:.2f} and {n128[gain_8]:.2f} times ({n128[us_8]:.2f} us)",
        rules=(Within("n128.gain_8", 2.1, TIME), AtLeast("n128.gain_8", 1.0)),
        conditions=_HOSTS,
        earlier="[a page](in-network-figures.md)",
    ),
    Claim(
        "sharp-4096",
        "An all-reduce of 4,096 bytes takes 3.24 times less",
        _2016,
        "46.93 to 14.48 us on 128 hosts",
        setting="fat-trees of 64 and 128 hosts, 100 Gb/s, beside recursive doubling",
        experiment=LARGE,
        shows="{n64[gain_4096]:.2f} and {n128[gain_4096]:.2f} times ({n128[us_4096]:.2f} us)",
        rules=(Within("n128.gain_4096", 3.24, TIME), AtLeast("n128.gain_4096", 1.0)),
        conditions=_HOSTS,
        earlier="[a page](in-network-figures.md)",
    ),
    Claim(
        "sharp-16",
        "Reducing in the switches pays on a small cluster as well",
        _2016,
        "no figure",
        "2 hops a level, up and down, beside log2 N exchanges between hosts",
        setting="k=4 fat-tree of 16 hosts",
        experiment=SMALL,
        shows="{gain_8:.2f} times at 8 bytes, {gain_4096:.2f} at 4,096; the time of hosts' "
        "software, of which rounds between hosts have more, is left out",
        rules=(AtLeast("gain_8", 1.5), AtLeast("gain_4096", 1.5)),
    ),
    Claim(
        "sharp-bytes",
        "A host sends its data once, where a ring sends 2 (N - 1) / N of it",
        _2016,
        "no figure",
        "1 and 1.875 with 16 hosts",
        setting="k=4 fat-tree of 16 hosts, 1 MB and 64 KB, bytes of ports over the data's",
        experiment=HOST_BYTES,
        shows="streaming {streaming[sent]:.3f}, low latency {low_latency[sent]:.3f}, ring "
        "{ring[sent]:.3f}, headers included",
        rules=(
            Within("streaming.sent", 1, BYTES),
            Within("low_latency.sent", 1, BYTES),
            Within("ring.sent", 1.875, BYTES),
        ),
    ),
    Claim(
        "sharp-stream",
        "Streaming reaches 95% of the network's bandwidth",
        _2020,
        "about 95% (the programme's page says 96%)",
        setting="k=4 fat-tree of 16 hosts, 16 MiB, of the goodput at MTU 9000",
        experiment=MODES,
        shows="{of_goodput:.1%}",
        rules=(AtLeast("of_goodput", 0.95),),
    ),
    Claim(
        "sharp-2-5",
        "Medium and large all-reduces are 2 to 5 times as fast as by hosts",
        _2020,
        "2 to 5 times",
        setting="k=4 fat-tree of 16 hosts, 64 KB, 1 MiB, 4 MiB, beside a ring",
        experiment=MODES,
        shows="{ring_64KB:.2f}, {ring_1MB:.2f}, {ring_4MB:.2f} times",
        rules=tuple(
            rule
            for size in ("64KB", "1MB", "4MB")
            for rule in (AtLeast(f"ring_{size}", 1.8), AtMost(f"ring_{size}", 5.5))
        ),
    ),
    Claim(
        "sharp-crossover",
        "Low latency is best for small, streaming for large messages",
        _DOCS,
        "two modes; no figure",
        setting="k=4 fat-tree of 16 hosts, 8 bytes and 512 KiB",
        experiment=MODES,
        shows="low latency takes {small_low_over_stream:.2f} times less at 8 bytes, streaming "
        "{large_stream_over_low:.2f} times less at 512 KiB",
        rules=(AtLeast("small_low_over_stream", 1.0), AtLeast("large_stream_over_low", 1.0)),
    ),
    Claim(
        "sharp-second-stream",
        "A second stream through a Quantum switch waits, through a Quantum-2 by another port not",
        _DOCS,
        "one active stream a switch (Quantum), a port (Quantum-2)",
        setting="two jobs of 4 hosts through the same two leaves, 1 MB",
        experiment=JOBS,
        shows="the slower stream takes {one_a_switch:.1f} us by the first rule, {one_a_port:.1f} "
        "by the second",
        rules=(Above("one_a_switch", "one_a_port"),),
    ),
    Claim(
        "sharp-multicast",
        "Results by multicast take 16% less for 8 bytes on 128 nodes",
        _2017,
        "16%",
        untested="switches copy results to all ports at once; sending them one by one is absent",
    ),
    Claim(
        "sharp-sockets",
        "Keeping off the bus between sockets takes 18% less with 28 processes a node",
        _2017,
        "18%",
        untested="a host has no sockets here",
    ),
    *(
        Claim(
            f"sharp-resnet{suffix}",
            f"ResNet-50 with Horovod is 16% faster{words}",
            _SLIDES,
            "16%",
            setting="ResNet-50 with a quarter of its channels, an unchanged DDP script, 16 hosts "
            f"of 4 leaves and 4 spines, 100 Gb/s, rates and sizes a 16th, {buckets}",
            experiment=experiment,
            shows="{gain[ring]:.2f} times as fast as by rings, {gain[tree]:.2f} as by double "
            "binary trees (one draw of ports): a step takes {us[switches]:,.0f}, {us[ring]:,.0f}, "
            "{us[tree]:,.0f} us, {compute_us:,.0f} of it computing",
            rules=(AtLeast("gain.ring", 1.0), Within("gain.ring", 1.16, TIME)),
            conditions="the cluster and its computing are not told; here that is a V100's roofline "
            "for two images, times 256",
        )
        for experiment, suffix, words, buckets in (
            (RESNET, "", "", "DDP's buckets of 25 MiB: bound by bandwidth"),
            (RESNET_SMALL, "-latency", ", where latency counts", "buckets a hundredth of DDP's"),
        )
    ),
    Claim(
        "sharp-resnet-computing",
        "ResNet-50 with Horovod is 16% faster, by how long computing takes",
        _SLIDES,
        "16%",
        "all of what a ring takes longer counts where nothing is hidden (1.8 times), and nothing "
        "where computing hides it",
        setting="the same cluster, DDP's buckets as layers, computing 0.5, 1, 2, 4, 8 times what a "
        "ring's all-reduces take",
        experiment=COMPUTING,
        shows="beside rings "
        + ", ".join(f"{{gain[ring][{x}]:.2f}}" for x in _COMPUTING)
        + " times as fast, beside double binary trees "
        + ", ".join(f"{{gain[tree][{x}]:.2f}}" for x in _COMPUTING),
        rules=tuple(Within(f"gain.ring.{x}", 1.16, TIME) for x in _COMPUTING),
        conditions="the ratio of computing to communicating is not told: 16% lies between "
        "computing once and twice as long as a ring's all-reduces take",
    ),
    Claim(
        "sharp-pytorch",
        "PyTorch is 18% faster, DL-Poly 4%",
        _2020,
        "18% and 4% (the programme's page: 10% and 7%)",
        untested="the same; the two sources differ",
    ),
)
