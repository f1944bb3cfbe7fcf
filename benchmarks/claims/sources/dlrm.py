"""The DLRM case study (Rashidi et al., Hot Interconnects 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import ROOT, Bench, Experiment
from benchmarks.claims.rules import TIME, Above, AtLeast, AtMost, Within

SYSTEMS = {
    "Flat100G": "flat100g",
    "Flat800G": "flat800g",
    "Hier": "hier",
    "HierOpt": "hieropt",
}
_SOURCE = "Rashidi et al., HOTI 2020 (slides)"
_SMALL = (
    "four systems of 16 ranks (`dlrm-small-*.yaml`), bytes, computing, chunks and buffer a 32nd"
)


def _small(system: str) -> str:
    text = (ROOT / "topologies" / f"dlrm-small-{SYSTEMS[system]}.yaml").read_text()
    table = ROOT / "topologies" / "dlrm-small-layers.txt"
    return text.replace("path: dlrm-small-layers.txt", f"path: {table}")


def _raw(
    bench: Bench, system: str, overrides: Mapping[str, object] | None = None
) -> tuple[float, float, dict[str, float]]:
    """Microseconds of two passes, those of them exposed, and of each collective by its layer: from
    its post to its end, the mean of both passes."""
    whole, found = bench.iteration(_small(system), overrides)
    raw: dict[str, list[float]] = {}
    for each in found.collectives:
        phase, _, _, layer = each.name.split(".")
        name = layer if phase == "weight_gradient" else f"AlltoAll {phase}"
        taken = each.predicted["packet"].duration_ns
        if taken is not None:
            raw.setdefault(name, []).append(taken / 1000)
    means = {name: sum(times) / len(times) for name, times in raw.items()}
    return whole.duration_ns / 1000, whole.exposed_comm_ns / 1000, means


def _published(bench: Bench) -> Mapping[str, Any]:
    """As published, and with FIFO in place of LIFO."""
    found: dict[str, Any] = {"us": {}, "exposed_us": {}, "Top0_us": {}, "longest_us": {}}
    found |= {"lifo_Bot0_gain": {}, "fifo_passes": {}, "a2a_us": {}, "larger": {}}
    found |= {"bottom_us": {}, "longest": {}}
    for system in SYSTEMS:
        us, exposed, raw = _raw(bench, system)
        fifo_us, _, fifo = _raw(
            bench, system, {"collectives.order": "fifo", "collectives.all_to_all.priority": 0}
        )
        layers = {name: time for name, time in raw.items() if not name.startswith("AlltoAll")}
        found["us"][system], found["exposed_us"][system] = us, exposed
        found["Top0_us"][system] = raw["Top0"]
        others = {name: time for name, time in layers.items() if name != "Top0"}
        found["longest"][system] = max(layers, key=lambda name: layers[name])
        found["longest_us"][system] = max(others.values())
        found["lifo_Bot0_gain"][system] = fifo["Bot0"] / raw["Bot0"]
        found["fifo_passes"][system] = fifo_us / us
        found["larger"][system] = {
            "Top": raw["Top10"] / raw["Top11"],
            "Bot": raw["Bot5"] / raw["Bot6"],
        }
        found["a2a_us"][system] = raw["AlltoAll forward"]
        found["bottom_us"][system] = sum(raw[f"Bot{i}"] for i in range(7)) / 7
    found["spread"] = max(found["us"].values()) / min(found["us"].values())
    found["flat800_over_hier"] = found["us"]["Hier"] / found["us"]["Flat800G"]
    found["hieropt_over_flat800"] = found["us"]["Flat800G"] / found["us"]["HierOpt"]
    return found


def _sensitivity(bench: Bench) -> Mapping[str, Any]:
    """Two passes with one thing changed, over the same as published."""
    found: dict[str, Any] = {"injection": {}, "in_flight_us": {}, "optimum": {}}
    for system in SYSTEMS:
        base = bench.iteration(_small(system))[0].duration_ns
        slow = bench.iteration(_small(system), {"collectives.endpoint_delay": "10us"})[0]
        found["injection"][system] = slow.duration_ns / base
        times = {}
        for many in (1, 4, 16, 64):
            whole, _ = bench.iteration(_small(system), {"collectives.in_flight": many})
            times[str(many)] = whole.duration_ns / 1000
        found["in_flight_us"][system] = times
        found["optimum"][system] = int(min(times, key=lambda many: times[many]))
    flat = min(found["injection"]["Flat100G"], found["injection"]["Flat800G"])
    hier = max(found["injection"]["Hier"], found["injection"]["HierOpt"])
    found["flat_over_hier_injection"] = flat / hier
    found["interior"] = sum(1 < each < 64 for each in found["optimum"].values())
    return found


def _buffer(bench: Bench) -> Mapping[str, Any]:
    """Two passes with a switch's buffer of 2 MB over those with 32 MB, in the virtual kernel: what
    is lost is sent again by Linux itself."""
    found: dict[str, Any] = {"us": {}, "buffer": {}, "lost": {}}
    for system in SYSTEMS:
        text = _small(system) + "virtual: {ranks_per_process: 16}\n"
        text = text.replace("predict: [alpha-beta, flow]", "predict: []")
        wide = bench.result(text)["iterations"][-1]["duration_ns"] / 1000
        narrow = bench.result(text.replace("buffer: 32MB", "buffer: 2MB"))
        found["us"][system] = wide
        found["buffer"][system] = narrow["iterations"][-1]["duration_ns"] / 1000 / wide
        found["lost"][system] = narrow["summary"]["drops"]
    found["spread"] = max(found["buffer"].values()) / min(found["buffer"].values())
    return found


def _full(bench: Bench) -> Mapping[str, Any]:
    """128 ranks, the full layer table; chunks of an all-reduce as many as are followed."""
    found: dict[str, Any] = {"us": {}, "longest": {}, "Top0_us": {}, "longest_us": {}}
    for system, name in SYSTEMS.items():
        text = (ROOT / "topologies" / f"dlrm-{name}.yaml").read_text()
        table = ROOT / "topologies" / "dlrm-layers.txt"
        text = text.replace("path: dlrm-layers.txt", f"path: {table}")
        chunks = 4 if system in ("Hier", "HierOpt") else 8
        more: dict[str, int] = {"collectives.all_reduce.chunks": chunks}
        if chunks == 8:
            more["collectives.all_to_all.chunks"] = 1
        whole, forecast = bench.iteration(text, more)
        raw: dict[str, list[int]] = {}
        for each in forecast.collectives:
            phase, _, _, layer = each.name.split(".")
            taken = each.predicted["packet"].duration_ns
            if phase == "weight_gradient" and taken is not None:
                raw.setdefault(layer, []).append(taken)
        means = {layer: sum(times) / len(times) / 1000 for layer, times in raw.items()}
        found["us"][system] = whole.duration_ns / 1000
        found["Top0_us"][system] = means["Top0"]
        found["longest"][system] = max(means, key=lambda layer: means[layer])
        found["longest_us"][system] = max(t for layer, t in means.items() if layer != "Top0")
    found["spread"] = max(found["us"].values()) / min(found["us"].values())
    return found


_FLAT_128 = """
name: flat-all-reduce
fabric: {kind: flat, hosts: 128, link: {rate: 100Gbps, delay: 500ns, mtu: 9000},
  queue: {kind: shared, buffer: 1GB}}
transport: {congestion_control: cubic, rcvbuf: 500KB, sndbuf: 500KB}
workload:
  kind: collectives
  ranks: 128
  operations:
    - {kind: all_reduce, size: 1MiB, program: {algorithm: direct}}
    - {kind: all_reduce, size: 1MiB, program: {algorithm: double-binary-tree, chunks: 16}}
predict: [packet]
"""


def _analytical(bench: Bench) -> Mapping[str, Any]:
    """One all-reduce of 128 ranks, beside ASTRA-sim's model and beside a bound that knows ports."""
    direct, tree = bench.durations_us(_FLAT_128)
    size, rate, ranks = 2**20, 100e9 / 8e6, 128  # bytes, and bytes a microsecond
    step_us = 2 * 0.5  # a message goes over two links
    # Its direct step has all messages leave at once, each at the port's full rate.
    model = 2 * (step_us + size / ranks / rate)
    bound = 2 * (step_us + (ranks - 1) / ranks * size / rate)
    return {
        "direct_us": direct,
        "tree_us": tree,
        "over_model": direct / model,
        "model_over_bound": bound / model,
        "over_bound": direct / bound,
    }


SMALL = Experiment("dlrm-small", "packet engine", _published)
SENSITIVITY = Experiment("dlrm-sensitivity", "packet engine", _sensitivity)
BUFFER = Experiment("dlrm-buffer", "virtual kernel", _buffer)
FULL = Experiment("dlrm-full", "packet engine", _full)
ANALYTICAL = Experiment("dlrm-analytical", "packet engine", _analytical)

CLAIMS = (
    Claim(
        "dlrm-systems",
        "The four systems differ by 3 times in the time of an iteration",
        _SOURCE,
        "“3x difference in total iteration time”",
        setting=_SMALL,
        experiment=SMALL,
        shows="{spread:.2f} times: {us[Flat100G]:,.0f}, {us[Flat800G]:,.0f}, {us[Hier]:,.0f}, "
        "{us[HierOpt]:,.0f} us for two passes",
        rules=(Within("spread", 3, TIME), AtLeast("spread", 1.5)),
    ),
    Claim(
        "dlrm-systems-full",
        "The same, at full size",
        _SOURCE,
        "“3x difference in total iteration time”",
        setting="128 ranks, all bytes; chunks of an all-reduce 8 (Flat) and 4 (Hier)",
        experiment=FULL,
        shows="{spread:.2f} times: {us[Flat100G]:,.0f}, {us[Flat800G]:,.0f}, {us[Hier]:,.0f}, "
        "{us[HierOpt]:,.0f} us for two passes",
        rules=(Within("spread", 3, TIME), AtLeast("spread", 1.5)),
        conditions="fewer chunks than the published 1,024, 128 and 32",
    ),
    Claim(
        "dlrm-tradeoff",
        "Flat against Hier is a trade-off: neither is always the faster",
        _SOURCE,
        "slide: Flat vs Hier trade-off",
        setting=_SMALL,
        experiment=SMALL,
        shows="Hier takes {flat800_over_hier:.2f} times as long as Flat800G, which takes "
        "{hieropt_over_flat800:.2f} times as long as HierOpt",
        rules=(AtLeast("flat800_over_hier", 1.0), AtLeast("hieropt_over_flat800", 1.0)),
    ),
    Claim(
        "dlrm-lifo",
        "LIFO shows in the raw latency of layers",
        _SOURCE,
        "slide: visible in raw latency; no values",
        setting=_SMALL,
        experiment=SMALL,
        shows="Bot0, posted last, is done {lifo_Bot0_gain[Flat100G]:.1f}, "
        "{lifo_Bot0_gain[Flat800G]:.1f}, {lifo_Bot0_gain[Hier]:.1f}, "
        "{lifo_Bot0_gain[HierOpt]:.1f} times as early as with FIFO",
        rules=tuple(AtLeast(f"lifo_Bot0_gain.{system}", 1.25) for system in SYSTEMS),
    ),
    Claim(
        "dlrm-lifo-time",
        "LIFO makes the iteration faster, as the next pass needs first what comes last",
        _SOURCE,
        "the reason for LIFO; no values",
        setting=_SMALL,
        experiment=SMALL,
        shows="FIFO takes {fifo_passes[Flat100G]:.3f}, {fifo_passes[Flat800G]:.3f}, "
        "{fifo_passes[Hier]:.3f}, {fifo_passes[HierOpt]:.3f} times as long",
        rules=tuple(AtLeast(f"fifo_passes.{system}", 1.01) for system in SYSTEMS),
    ),
    Claim(
        "dlrm-mlp-size",
        "The size of an MLP's layer shows in its raw latency",
        _SOURCE,
        "slide: MLP-size effect visible in raw latency; no values",
        "Top10 has 2,048 times the bytes of Top11, Bot5 16 times those of Bot6; each pair is "
        "posted one after the other",
        setting=_SMALL,
        experiment=SMALL,
        shows="Top10 takes {larger[Flat100G][Top]:.1f}, {larger[Flat800G][Top]:.1f}, "
        "{larger[Hier][Top]:.1f}, {larger[HierOpt][Top]:.1f} times as long as Top11, Bot5 "
        "{larger[Flat100G][Bot]:.2f}, {larger[Flat800G][Bot]:.2f}, {larger[Hier][Bot]:.2f}, "
        "{larger[HierOpt][Bot]:.2f} times as long as Bot6",
        rules=tuple(
            AtLeast(f"larger.{system}.{mlp}", 1.25) for system in SYSTEMS for mlp in ("Top", "Bot")
        ),
    ),
    Claim(
        "dlrm-top0",
        "Top0 has the longest raw all-reduce",
        _SOURCE,
        "slide: “MLP Top0” is the conspicuous layer",
        setting=_SMALL,
        experiment=SMALL,
        shows="the longest are {longest[Flat100G]}, {longest[Flat800G]}, {longest[Hier]}, "
        "{longest[HierOpt]}",
        rules=tuple(Above(f"Top0_us.{s}", f"longest_us.{s}") for s in SYSTEMS),
    ),
    Claim(
        "dlrm-top0-full",
        "The same, at full size",
        _SOURCE,
        "slide: “MLP Top0” is the conspicuous layer",
        setting="128 ranks, all bytes; chunks of an all-reduce 8 (Flat) and 4 (Hier)",
        experiment=FULL,
        shows="the longest are {longest[Flat100G]}, {longest[Flat800G]}, {longest[Hier]}, "
        "{longest[HierOpt]}",
        rules=tuple(Above(f"Top0_us.{s}", f"longest_us.{s}") for s in SYSTEMS),
        conditions="fewer chunks than the published 1,024, 128 and 32",
    ),
    Claim(
        "dlrm-a2a",
        "The AlltoAll's latency differs from that of the bottom MLP's all-reduces",
        _SOURCE,
        "slide: A2A exposed latency differs from bottom MLP; no values",
        setting=_SMALL + "; raw latency",
        experiment=SMALL,
        shows="{a2a_us[Flat100G]:.1f}, {a2a_us[Flat800G]:.1f}, {a2a_us[Hier]:.1f}, "
        "{a2a_us[HierOpt]:.1f} us, bottom MLP (mean of 7) {bottom_us[Flat100G]:.0f}, "
        "{bottom_us[Flat800G]:.0f}, {bottom_us[Hier]:.0f}, {bottom_us[HierOpt]:.0f} us",
        rules=tuple(Above(f"bottom_us.{s}", f"a2a_us.{s}") for s in SYSTEMS),
    ),
    Claim(
        "dlrm-injection",
        "Flat is more sensitive to injection latency than Hier",
        _SOURCE,
        "slide: Flat more sensitive to memory-copy latency; no values",
        setting=_SMALL + "; 10 us in place of 10 ns",
        experiment=SENSITIVITY,
        shows="{injection[Flat100G]:.1f} and {injection[Flat800G]:.1f} times as long, Hier and "
        "HierOpt {injection[Hier]:.1f} and {injection[HierOpt]:.1f}",
        rules=(AtLeast("flat_over_hier_injection", 1.0),),
    ),
    Claim(
        "dlrm-buffer",
        "The systems differ in their sensitivity to the global switch's buffer",
        _SOURCE,
        "slide: different sensitivity to global switch buffer; no values",
        setting=_SMALL + "; 2 MB in place of 32 MB",
        experiment=BUFFER,
        shows="{buffer[Flat100G]:.2f}, {buffer[Flat800G]:.2f}, {buffer[Hier]:.2f}, "
        "{buffer[HierOpt]:.2f} times as long; {lost[Flat100G]}, {lost[Flat800G]}, {lost[Hier]}, "
        "{lost[HierOpt]} packets are lost, of which Linux waits for some by its timer",
        rules=(AtLeast("spread", 1.25),),
    ),
    Claim(
        "dlrm-concurrency",
        "Concurrency has an optimum inside the range: utilisation against queueing",
        _SOURCE,
        "slide: interior optimum; 64 and 128 chunks in flight",
        setting=_SMALL + "; 1, 4, 16, 64 in flight",
        experiment=SENSITIVITY,
        shows="fastest with {optimum[Flat100G]}, {optimum[Flat800G]}, {optimum[Hier]}, "
        "{optimum[HierOpt]} in flight; inside for {interior} of 4",
        rules=tuple(
            rule
            for system in SYSTEMS
            for rule in (AtLeast(f"optimum.{system}", 2), AtMost(f"optimum.{system}", 63))
        ),
    ),
    Claim(
        "dlrm-analytical",
        "An analytical model of a flat all-reduce of 128 nodes is off by up to 50 times",
        _SOURCE,
        "“up to 50x”; size and algorithm are not told",
        "ASTRA-sim's rule: all messages of a direct step leave at once, each at full rate",
        setting="128 ranks on a switch, 1 MiB, direct",
        experiment=ANALYTICAL,
        shows="{over_model:.0f} times; beside a bound that knows the port {over_bound:.2f}",
        rules=(AtLeast("over_model", 50),),
        conditions="{model_over_bound:.0f} times are the model's own rule, by which 127 messages "
        "leave a port at once",
    ),
)
