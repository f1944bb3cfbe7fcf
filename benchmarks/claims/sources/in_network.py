"""Switches that reduce (SHArP and SHARP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import in_network
from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment
from benchmarks.claims.rules import Above, AtLeast, AtMost, Within

_2016 = "Graham et al., COMHPC 2016 (SHArP), abstract"
_2017 = "SHArP 2017, abstract"
_2020 = "Graham et al., ISC 2020 (SAT), abstract"
_DOCS = "NVIDIA SHARP, Rev 3.13"


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


SMALL = Experiment("sharp-16", "virtual kernel", _small)
LARGE = Experiment("sharp-128", "virtual kernel", _large)
BYTES = Experiment("sharp-bytes", "virtual kernel", _bytes)
MODES = Experiment("sharp-modes", "virtual kernel", _modes)
JOBS = Experiment("sharp-jobs", "virtual kernel", _jobs)
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
        rules=(Within("n128.gain_8", 2.1, 0.25), AtLeast("n128.gain_8", 1.0)),
        conditions=_HOSTS,
        earlier="[a page](in-network.md)",
    ),
    Claim(
        "sharp-4096",
        "An all-reduce of 4,096 bytes takes 3.24 times less",
        _2016,
        "46.93 to 14.48 us on 128 hosts",
        setting="fat-trees of 64 and 128 hosts, 100 Gb/s, beside recursive doubling",
        experiment=LARGE,
        shows="{n64[gain_4096]:.2f} and {n128[gain_4096]:.2f} times ({n128[us_4096]:.2f} us)",
        rules=(Within("n128.gain_4096", 3.24, 0.25), AtLeast("n128.gain_4096", 1.0)),
        conditions=_HOSTS,
        earlier="[a page](in-network.md)",
    ),
    Claim(
        "sharp-16",
        "Reducing in the switches pays on a small cluster as well",
        _2016,
        "no figure",
        "2 hops a level, up and down, beside log2 N exchanges between hosts",
        setting="k=4 fat-tree of 16 hosts",
        experiment=SMALL,
        shows="{gain_8:.2f} times at 8 bytes, {gain_4096:.2f} at 4,096",
        rules=(AtLeast("gain_8", 1.5), AtLeast("gain_4096", 1.5)),
    ),
    Claim(
        "sharp-bytes",
        "A host sends its data once, where a ring sends 2 (N - 1) / N of it",
        _2016,
        "no figure",
        "1 and 1.875 with 16 hosts",
        setting="k=4 fat-tree of 16 hosts, 1 MB and 64 KB, bytes of ports over the data's",
        experiment=BYTES,
        shows="streaming {streaming[sent]:.3f}, low latency {low_latency[sent]:.3f}, ring "
        "{ring[sent]:.3f}, headers included",
        rules=(
            Within("streaming.sent", 1, 0.1),
            Within("low_latency.sent", 1, 0.1),
            Within("ring.sent", 1.875, 0.1),
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
    Claim(
        "sharp-resnet",
        "ResNet-50 with Horovod is 16% faster",
        "NVIDIA, slides on SHARP (HDR, Quantum)",
        "16%",
        untested="a script's process groups have no aggregation trees yet, and the cluster's size "
        "is not told",
    ),
    Claim(
        "sharp-pytorch",
        "PyTorch is 18% faster, DL-Poly 4%",
        _2020,
        "18% and 4% (the programme's page: 10% and 7%)",
        untested="the same; the two sources differ",
    ),
)
