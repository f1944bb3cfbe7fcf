"""Claims of memory beyond an accelerator's own, with traces whose memory nodes are on the wire."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from analysis.chakra.files import write_graphs
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode, MemoryNode
from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment
from benchmarks.claims.rules import Above, AtLeast
from collectives.call import CollectiveCall

_RANKS, _LAYERS = 4, 3
_HIDDEN, _SEQUENCE, _ITEM_BYTES = 512, 256, 2
_WEIGHTS_BYTES = 12 * _HIDDEN**2 * _ITEM_BYTES
"""A transformer's layer has 4 h^2 weights of attention, and 8 h^2 of its two products."""
_FLOPS = 20e12
"""Operations a second of an accelerator, small, as the layer is."""
_POOL_HOSTS = 2
_EXPANSIONS = {
    "none": "",
    "local": ", memory: {kind: local, rate: 100GB/s, latency: 1us}",
    "pool": f", memory: {{kind: pool, hosts: {_POOL_HOSTS}, rate: 100GB/s, latency: 1us}}",
}
_BATCHES = (4, 16, 64)

_SPEC = """
name: expansion
fabric: {{kind: flat, hosts: {hosts}, link: {{rate: 400Gbps, delay: 500ns}}}}
workload: {{kind: chakra, path: {path}{memory}}}
payload: timing
capture: {{points: []}}
predict: []
"""


class _Step:
    """A rank's iteration; all ranks are alike."""

    def __init__(self) -> None:
        self._nodes: list[GraphNode] = []

    def graph(self) -> Graph:
        return tuple(self._nodes)

    def compute(self, name: str, duration_ns: int, *after: int) -> int:
        return self._add(
            ComputeNode(id=len(self._nodes), name=name, after=after, duration_ns=duration_ns)
        )

    def reduce(self, name: str, size_bytes: int, *after: int) -> int:
        call = CollectiveCall("all_reduce", size_bytes, tuple(range(_RANKS)))
        return self._add(CollectiveNode(id=len(self._nodes), name=name, after=after, call=call))

    def load(self, name: str, size_bytes: int, *after: int) -> int:
        node = MemoryNode(
            id=len(self._nodes), name=name, after=after, loads=True, size_bytes=size_bytes
        )
        return self._add(node)

    def _add(self, node: GraphNode) -> int:
        self._nodes.append(node)
        return node.id


def _passes(batch: int) -> list[tuple[str, int]]:
    """Each layer's forward and backward pass, with its computing time on one of all ranks."""
    flops = 2 * batch * _SEQUENCE * (12 * _HIDDEN**2 + 2 * _SEQUENCE * _HIDDEN)
    forward_ns = round(flops / _RANKS / _FLOPS * 1e9)
    passes = [(f"forward.{layer}", forward_ns) for layer in range(_LAYERS)]
    return passes + [(f"backward.{layer}", 2 * forward_ns) for layer in reversed(range(_LAYERS))]


def _split_by_tensors(batch: int) -> Graph:
    """Weights that fit, as each rank has a part of each layer: two all-reduces of activations in
    each pass (Megatron-LM), which the next half waits for."""
    step = _Step()
    activations_bytes = batch * _SEQUENCE * _HIDDEN * _ITEM_BYTES
    last: tuple[int, ...] = ()
    for name, duration_ns in _passes(batch):
        for half in ("attention", "products"):
            done = step.compute(f"{name}.{half}", duration_ns // 2, *last)
            last = (step.reduce(f"activations.{name}.{half}", activations_bytes, done),)
    return step.graph()


def _split_by_data(batch: int) -> Graph:
    """Weights that do not fit: each rank has a part of the batch, and loads a layer's weights one
    pass ahead; gradients are reduced beside what follows."""
    step = _Step()
    passes = _passes(batch)
    done: list[int] = []
    for place, (name, duration_ns) in enumerate(passes):
        # One pass ahead: when the one before the last is over.
        load = step.load(f"weights.{name}", _WEIGHTS_BYTES, *done[place - 2 : place - 1])
        done.append(step.compute(name, duration_ns, *done[-1:], load))
        if name.startswith("backward"):
            step.reduce(f"gradients.{name}", _WEIGHTS_BYTES, done[-1])
    return step.graph()


def _expansion(bench: Bench) -> Mapping[str, Any]:
    """Microseconds of an iteration by batch: without expansion and with it, beside the rank and in
    a pool of hosts."""
    found: dict[str, dict[str, float]] = {name: {} for name in _EXPANSIONS}
    for batch in _BATCHES:
        for name, memory in _EXPANSIONS.items():
            graph = _split_by_data(batch) if memory else _split_by_tensors(batch)
            digest = hashlib.sha256(repr(graph).encode()).hexdigest()[:12]
            prefix = (bench.runs / f"trace-{digest}" / "step").resolve()
            prefix.parent.mkdir(parents=True, exist_ok=True)
            write_graphs(prefix, [graph] * _RANKS)
            hosts = _RANKS + _POOL_HOSTS * (name == "pool")
            spec = _SPEC.format(hosts=hosts, path=prefix, memory=memory)
            (iteration,) = bench.result(spec)["iterations"]
            found[name][f"of{batch}"] = iteration["duration_ns"] / 1000
    gains = {
        name: [found["none"][batch] / found[name][batch] for batch in found["none"]]
        for name in ("local", "pool")
    }
    return {
        **found,
        **{f"most_{name}": max(each) for name, each in gains.items()},
        **{f"least_{name}": min(each) for name, each in gains.items()},
    }


_ACCELERATORS, _LAYER_BYTES = 8, 16_000_000
_LOCAL_BYTES_PER_S = 100e9
"""ZeRO-Infinity's memory beside each accelerator in the paper's comparison, 100 GB/s."""
_NETWORK, _MEMORY_FABRICS = "100Gbps", {"equal": "100Gbps", "fast": "500Gbps"}
"""The paper has a pool's fabric as fast as the memory beside accelerators, and five times so."""

_LAYER = """
name: layer
fabric: {{kind: flat, hosts: {hosts}, link: {{rate: {rate}, delay: 500ns, mtu: 9000}}}}
workload: {{kind: collectives, ranks: {hosts}, operations: {operations}}}
collectives: {{backend: programs, {algorithms}}}
{aggregation}
payload: timing
capture: {{points: []}}
predict: []
"""


def _pooled(rate: str, algorithm: str) -> str:
    """A layer's weights go from a pool's host to all accelerators, and gradients go back."""
    ends = f"size: {_LAYER_BYTES}, root: {_ACCELERATORS}"
    return _LAYER.format(
        hosts=_ACCELERATORS + 1,
        rate=rate,
        operations=f"[{{kind: broadcast, {ends}}}, {{kind: reduce, {ends}}}]",
        algorithms=f"broadcast: {{algorithm: {algorithm}}}, reduce: {{algorithm: {algorithm}}}",
        aggregation=f"aggregation: {{mode: streaming, rate: {rate}}}"
        if algorithm == "aggregation"
        else "",
    )


def _network_collectives(bench: Bench) -> Mapping[str, Any]:
    """Microseconds of communication and memory for a layer, none of it hidden: parts that lie
    beside the accelerators, which gather them and scatter gradients; a pool whose switches
    multicast and add up; and a pool whose host sends each accelerator the layer by itself."""
    own = _LAYER.format(
        hosts=_ACCELERATORS,
        rate=_NETWORK,
        operations=f"[{{kind: all_gather, size: {_LAYER_BYTES}}}, "
        f"{{kind: reduce_scatter, size: {_LAYER_BYTES}}}]",
        algorithms="all_gather: {algorithm: ring}, reduce_scatter: {algorithm: ring}",
        aggregation="",
    )

    def took_us(spec: str) -> float:
        took_ns: int = sum(each["duration_ns"] for each in bench.result(spec)["collectives"])
        return took_ns / 1000

    memory_us = 2 * _LAYER_BYTES / _ACCELERATORS / _LOCAL_BYTES_PER_S * 1e6
    pools = {name: took_us(_pooled(rate, "aggregation")) for name, rate in _MEMORY_FABRICS.items()}
    found = {
        "local": memory_us + took_us(own),
        **pools,
        "alone": took_us(_pooled(_NETWORK, "direct")),
    }
    return {
        **found,
        "equal_gain": found["local"] / found["equal"],
        "fast_gain": found["local"] / found["fast"],
        "switches_gain": found["alone"] / found["equal"],
    }


_EXPANSION = Experiment("expansion", "the virtual kernel", _expansion)
_POOLED = Experiment("network-memory", "the virtual kernel", _network_collectives)
_SETTING = (
    f"a transformer of {_LAYERS} layers (hidden {_HIDDEN}, sequence {_SEQUENCE}) on {_RANKS} "
    "accelerators, 400 Gb/s, TCP; 4 tensor-parallel ranks without expansion, 4 data-parallel ones "
    "with 100 GB/s beside each, or in a pool of 2 hosts"
)

CLAIMS = (
    Claim(
        "comet-expansion-wire",
        "The same on the wire: memory nodes as messages, collectives by real ranks",
        "Kadiyala et al., 2022 (COMET), abstract",
        "“up to 1.4x”",
        setting=_SETTING,
        experiment=_EXPANSION,
        shows="local {least_local:.2f} to {most_local:.2f} times, pool {least_pool:.2f} to "
        "{most_pool:.2f} times, with batches of 4 to 64: {none[of4]:.0f}, {none[of16]:.0f}, "
        "{none[of64]:.0f} us without, {local[of4]:.0f}, {local[of16]:.0f}, {local[of64]:.0f} us "
        "local, {pool[of4]:.0f}, {pool[of16]:.0f}, {pool[of64]:.0f} us pool",
        rules=(AtLeast("most_local", 1.4), Above("none.of64", "pool.of64")),
        conditions="the sizes are ours; activations are reduced by tensor parallelism alone, and "
        "grow with the batch, weights do not",
    ),
    Claim(
        "astra2-memory",
        "A memory pool whose network does collectives leaves 4.6 times less exposed than local "
        "memory by ZeRO-Infinity",
        "Won et al., ISPASS 2023 (ASTRA-sim 2.0)",
        "“4.6x”, of a mixture of experts",
        setting=f"a layer of {_LAYER_BYTES // 10**6} MB for {_ACCELERATORS} accelerators, loaded "
        "and its gradients stored, nothing hidden: an eighth at 100 GB/s beside each, gathered and "
        f"scattered by rings over {_NETWORK[:-4]} Gb/s; or a pool's host, whose switch multicasts "
        "and adds up",
        experiment=_POOLED,
        shows="{local:.0f} us local; pool by a fabric as fast {equal:.0f} ({equal_gain:.2f} "
        "times), five times as fast {fast:.0f} ({fast_gain:.2f} times); a pool whose host sends to "
        "each by itself {alone:.0f}: switches gain {switches_gain:.1f} times",
        rules=(Above("local", "fast"), Above("alone", "equal")),
        conditions="no experts, sizes are ours; the gain over local memory is the rate of the "
        "pool's fabric, and with equal links there is none",
    ),
)
