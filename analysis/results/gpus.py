"""The use of virtual GPUs: memory, time of kernels, and the share of the peak that is reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from analysis.runs.records import IterationRecord
from analysis.runs.run import RankLog, Run
from collectives.kinds import Kind
from topologies.spec.compute_section import DEVICES, ComputeSpec


@dataclass(frozen=True)
class KernelTotal:
    """The kernels of one operator on all GPUs; nanoseconds of the target fabric."""

    operator: str
    kernels: int
    ns: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class ClassTotal:
    """The kernels of one class on all GPUs; nanoseconds of the target fabric."""

    kernel_class: str
    kernels: int
    ns: int


@dataclass(frozen=True)
class DimensionExposure:
    """The exposed communication of a dimension of the device mesh, such as tp: how long the default
    stream stood still for its collectives, and how much of the iterations' time that is. Means
    over ranks and iterations, without the first one where there are several. `kinds` has
    `exposed_ns` by kind of collective. Groups that are no dimension are told by their names."""

    dimension: str
    exposed_ns: int
    share: float
    kinds: dict[str, int]


@dataclass(frozen=True)
class Bubbles:
    """The part of exposed communication in which a stage of a pipeline waited for messages that
    their senders had not begun to send: their computing, and not the network. Means as above."""

    bubble_ns: int
    share: float


@dataclass(frozen=True)
class Throughput:
    """Tokens of an iteration of the whole job, and how many a second each GPU trains on. `source`
    is `given` (`compute.tokens`), or `embeddings`: what forward passes looked up in the largest
    one, where ranks of a dimension of tensor parallelism look up the same."""

    tokens: int
    source: Literal["given", "embeddings"]
    tokens_per_gpu_per_s: float


@dataclass(frozen=True)
class GpuUse:
    """A GPU of a rank. `mfu` is the model FLOP utilization: FLOP of its kernels in an iteration
    over the iteration's time and the device's 16-bit peak, the mean without the first iteration
    (Chowdhery et al., PaLM, 2022, appendix B; here also of what is computed again). None where no
    iteration or no peak is known."""

    rank: int
    device: int
    memory_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    mfu: float | None


def gpus_of(run: Run) -> tuple[GpuUse, ...]:
    """The GPUs that ranks used, by rank."""
    return tuple(
        GpuUse(
            log.rank,
            gpu.device,
            gpu.memory_bytes,
            gpu.peak_allocated_bytes,
            gpu.peak_reserved_bytes,
            _utilization(log, run.spec.compute),
        )
        for log in run.ranks
        for gpu in log.gpus
    )


def kernels_of(run: Run) -> tuple[KernelTotal, ...]:
    """The kernels of all GPUs by operator, longest first."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for log in run.ranks:
        for gpu in log.gpus:
            for operator, own in gpu.kernels.items():
                totals[operator] = [a + b for a, b in zip(totals[operator], own, strict=True)]
    found = [
        KernelTotal(operator, count, ns // run.environment.scale, flops, moved)
        for operator, (count, ns, flops, moved) in totals.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.ns, each.operator)))


_CLASSES = (
    ("attention", ("attention", "scaled_dot_product")),
    ("optimizer", ("_fused_adam", "_fused_sgd", "_fused_adagrad", "_foreach_", "_amp_")),
    ("convolution", ("convolution", "conv_depthwise")),
    ("norm", ("norm", "batch_norm")),
    ("softmax and loss", ("softmax", "nll_loss", "cross_entropy", "_loss")),
    ("embedding and indexing", ("embedding", "index", "gather", "scatter", "topk", "sort")),
    ("copy", ("copy", "cat", "clone", "_to_copy", "split_with_sizes", "contiguous")),
)
_PRODUCTS = frozenset(
    ("mm", "addmm", "bmm", "baddbmm", "linear", "_scaled_mm", "_int_mm", "_addmm_activation",
     "_grouped_mm", "_scaled_grouped_mm", "matmul", "dot", "mv", "addmv")
)  # fmt: skip
LINK_COPIES = ("copy to device", "copy to host")
_Call = tuple[int | None, int | None]
_TENSORS = ("tp", "tensor")
"""In names of dimensions whose ranks compute parts of the same tokens."""


def kernel_class(operator: str) -> str:
    """The class of an operator's kernels: matrix product, attention, norm and so on; elementwise
    where it is none of them."""
    if operator in LINK_COPIES:
        return "copy between host and device"
    name = operator.rpartition("::")[2]
    if name in _PRODUCTS:
        return "matrix product"
    return next(
        (kind for kind, parts in _CLASSES if any(part in name for part in parts)), "elementwise"
    )


def classes_of(kernels: Iterable[KernelTotal]) -> tuple[ClassTotal, ...]:
    """Kernels by class, longest first."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for kernel in kernels:
        total = totals[kernel_class(kernel.operator)]
        total[0] += kernel.kernels
        total[1] += kernel.ns
    found = [ClassTotal(name, count, ns) for name, (count, ns) in totals.items()]
    return tuple(sorted(found, key=lambda each: (-each.ns, each.kernel_class)))


def _counted(log: RankLog) -> tuple[IterationRecord, ...]:
    """The iterations that figures count: without the first one, where there are several."""
    return log.iterations[1:] or log.iterations


def exposure_of(run: Run) -> tuple[DimensionExposure, ...]:
    """Exposed communication by dimension of the mesh, longest first; nothing without iterations."""
    waited: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    time_ns = counted = 0
    for log in run.ranks:
        names = {group.name: group.mesh for group in log.groups}
        iterations = _counted(log)
        indices = {each.index for each in iterations}
        time_ns += sum(each.end_ns - each.start_ns for each in iterations)
        counted += len(indices)
        for each in log.collectives:
            if each.iteration in indices:
                name = names.get(each.group) or each.group
                waited[name][each.kind] += each.waited_ns
    if time_ns == 0:
        return ()
    counted *= run.environment.scale
    found = []
    for name, kinds in waited.items():
        ns = sum(kinds.values())
        longest = sorted(kinds.items(), key=lambda each: (-each[1], each[0]))
        by_kind = {kind: own // counted for kind, own in longest}
        found.append(DimensionExposure(name, ns // counted, ns / time_ns, by_kind))
    return tuple(sorted(found, key=lambda each: (-each.exposed_ns, each.dimension)))


def bubbles_of(run: Run) -> Bubbles | None:
    """The bubbles of a pipeline; None without messages between ranks, or without iterations."""
    began: dict[tuple[str, str], int] = {}
    for log in run.ranks:
        for each in log.collectives:
            if each.kind == Kind.SEND_RECV:
                key = each.group, each.id
                began[key] = max(began.get(key, 0), each.start_ns)
    bubble_ns = time_ns = counted = 0
    for log in run.ranks:
        iterations = _counted(log)
        indices = {each.index for each in iterations}
        time_ns += sum(each.end_ns - each.start_ns for each in iterations)
        counted += len(indices)
        messages = [each for each in log.collectives if each.kind == Kind.SEND_RECV]
        until: dict[_Call, int] = defaultdict(int)  # those that are posted together are one call
        for each in messages:
            call = each.stream, each.posted_ns
            until[call] = max(until[call], began[each.group, each.id])
        for each in messages:
            if each.iteration in indices:
                ended_ns = until[each.stream, each.posted_ns]
                bubble_ns += sum(max(0, min(to, ended_ns) - since) for since, to in each.waits)
    if not began or not time_ns:
        return None
    return Bubbles(bubble_ns // counted // run.environment.scale, bubble_ns / time_ns)


def throughput_of(run: Run) -> Throughput | None:
    """Tokens a second; None where nobody says how many tokens there are."""
    each_ns = [
        sum(each.end_ns - each.start_ns for each in counted) / len(counted)
        for log in run.ranks
        if (counted := _counted(log))
    ]
    given = run.spec.compute.tokens
    tokens = _looked_up(run) if given is None else given
    if tokens is None or not each_ns:
        return None
    seconds = sum(each_ns) / len(each_ns) / run.environment.scale / 1e9
    rate = tokens / len(run.ranks) / seconds
    return Throughput(tokens, "embeddings" if given is None else "given", rate)


def sharing_unknown(run: Run) -> str | None:
    """A group whose ranks may look up the same tokens, as no dimension of a mesh tells what it is
    for; None where there is none."""
    for log in run.ranks:
        for group in log.groups:
            if group.mesh is None and 1 < len(group.ranks) < len(run.ranks):
                return group.name
    return None


def _looked_up(run: Run) -> int | None:
    if sharing_unknown(run) is not None:
        return None
    total = 0.0
    for log in run.ranks:
        sharing = [
            len(group.ranks)
            for group in log.groups
            if group.mesh is not None and any(part in group.mesh for part in _TENSORS)
        ]
        counted = [each.tokens or 0 for each in _counted(log)]
        if counted:
            total += sum(counted) / len(counted) / max(sharing, default=1)
    return round(total) or None


def gpu_section(run: Run) -> dict[str, Any] | None:
    """`gpus` of result.json; None where there are none."""
    gpus = gpus_of(run)
    if not gpus:
        return None
    kernels = kernels_of(run)
    return {
        "ranks": [vars(gpu) for gpu in gpus],
        "kernels": [vars(kernel) for kernel in kernels],
        "classes": [vars(each) for each in classes_of(kernels)],
        "exposed": [vars(each) for each in exposure_of(run)],
        "bubbles": None if (bubbles := bubbles_of(run)) is None else vars(bubbles),
        "throughput": None if (rate := throughput_of(run)) is None else vars(rate),
    }


def _utilization(log: RankLog, compute: ComputeSpec) -> float | None:
    peak = compute.flops_per_s
    if peak is None and compute.device in DEVICES:
        peak = DEVICES[compute.device].flops_16bit
    iterations = _counted(log)
    time_ns = sum(each.end_ns - each.start_ns for each in iterations)
    if peak is None or time_ns == 0:
        return None
    counted = {each.index for each in iterations}
    flops = sum(each.flops for each in log.computes if each.iteration in counted)
    return flops * compute.slowdown / (time_ns / 1e9 * peak)
