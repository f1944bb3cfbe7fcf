"""The standard suite: the runs of a calibration, and those that are held out."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.predict.engines.paths import paths_of
from analysis.predict.engines.wire import packets
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import Spec, parse_spec
from workloads.models.planned import planned_calls

KINDS = ("all_reduce", "all_to_all", "all_gather", "broadcast")
FABRICS = {
    "flat": "{kind: flat, hosts: 16, %s}",
    "fat-tree": "{kind: fat-tree, k: 4, %s}",
    "leaf-spine": "{kind: leaf-spine, leaves: 4, spines: 2, hosts_per_leaf: 4, %s}",
    "torus": "{kind: torus, dims: [4, 4], %s}",
}
"""All of 16 hosts; the leaf-spine is oversubscribed 2:1."""

TRAIN_FABRICS = ("fat-tree", "flat")
"""Half of the sizes on these are fitted; everything on the others is held out."""

_PORT = "link: {rate: 100Gbps, delay: 500ns, mtu: 9000}, queue: {kind: droptail, buffer: 256MB}"

_TRANSPORT = "{congestion_control: cubic, initial_window: 1000}"
"""Windows wider than a message, and buffers that hold what they let out. A window narrower than a
message decides which of a port's messages goes first. Earlier collectives have made that window,
and no predictor knows them: one and the same call then takes 29% longer or shorter."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A run's share of the sizes: few iterations of the large ones, which take long."""

    name: str
    sizes: tuple[str, ...]
    iterations: int
    kinds: tuple[str, ...] = KINDS


_PARTS = (
    _Part("small", ("64KB", "256KB", "1MB", "4MB"), 2),
    _Part("large", ("16MB",), 2),
    _Part("huge-rings", ("64MB",), 1, ("all_reduce", "all_gather")),
    _Part("huge-trees", ("64MB",), 1, ("all_to_all", "broadcast")),
)

_START_S = 10.0
_PACKETS_PER_S = 18_000.0
"""The time of a run in the virtual kernel on one core of an AMD EPYC: boot and torch's import, then
packets times links, acknowledgements and payload checks included (docs/comparing.md)."""


def standard_suite(largest_bytes: int | None = None) -> tuple[Spec, ...]:
    """The runs of `groundwire calibrate --suite standard`.

    {fat-tree k=4, torus 4x4, leaf-spine 2:1, flat} x {all-reduce, all-to-all, all-gather,
    broadcast} x 64 KB to 64 MB, over 16 ranks at 100 Gb/s, with windows that do not limit and
    no losses.
    `largest_bytes` leaves out larger sizes.
    """
    found = []
    for fabric, text in FABRICS.items():
        for part in _PARTS:
            operations = ", ".join(
                f"{{kind: {kind}, size: {size}}}" for size in part.sizes for kind in part.kinds
            )
            spec = parse_spec(
                f"name: {fabric}-{part.name}\n"
                f"fabric: {text % _PORT}\n"
                f"transport: {_TRANSPORT}\n"
                f"workload: {{kind: collectives, ranks: 16, iterations: {part.iterations}, "
                f"operations: [{operations}]}}\n"
                "capture: {points: []}\n"
                "predict: [alpha-beta, flow]\n",
                source=f"the standard suite's {fabric}-{part.name}",
            )
            assert spec.workload.listed is not None, "as it is written"
            largest = max(operation.size_bytes for operation in spec.workload.listed.operations)
            if largest_bytes is None or largest <= largest_bytes:
                found.append(spec)
    return tuple(found)


def estimated_wall_s(spec: Spec) -> float:
    """Seconds that a run of the suite takes in the virtual kernel when nothing else runs."""
    setting = setting_of_spec(spec)
    paths = paths_of(setting)
    crossed = 0
    for planned in planned_calls(spec):
        for post in planned.call.posts(spec.seed):
            hops = paths.costs(post.source, post.destination).hops
            crossed += int((packets(post.size_bytes, paths.mtu_bytes) * hops).sum())
    return _START_S + crossed * spec.workload.iterations / _PACKETS_PER_S
