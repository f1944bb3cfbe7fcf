"""A DLRM training step (Naumov et al., arXiv 1906.00091) as its network sees it.

Embedding tables are model-parallel: the columns of all tables (sparse_features *
embedding_dimension) are divided evenly among the ranks, each rank looks its columns up for the
global batch, and an all-to-all regroups them by sample. The MLPs are data-parallel: their
gradients are all-reduced in buckets while the backward pass goes on, as PyTorch's DDP does (Li
et al., VLDB 2020).

forward     embedding look-up, AlltoAll (overlapping the bottom MLP), interaction, top MLP
backward    top MLP, interaction, AlltoAll of the embedding gradients (overlapping the bottom MLP),
            bottom MLP; a bucket of gradients goes out as soon as it is full
update      embedding rows, then the dense parameters once all buckets are reduced
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist

from topologies.dlrm_model import DlrmModel, Layer
from topologies.workload_spec import DlrmWorkload
from workloads import payload
from workloads.clock import now_ns
from workloads.communicator import Communicator, Pending
from workloads.compute_model import Compute
from workloads.events import EventLog
from workloads.operations import DTYPES


class _Buckets:
    """Gradients on their way: filled in the order of the backward pass, sent when full (as DDP).

    Without overlap each bucket is waited for as soon as it is sent.
    """

    def __init__(self, model: DlrmModel, world: Communicator, iteration: int) -> None:
        self._overlap = model.spec.overlap
        self._count = 0
        self._world = world
        self._iteration = iteration
        self._dtype = DTYPES[model.spec.dtype]
        self._item_bytes = model.item_bytes
        self._capacity = model.bucket_parameters
        self._filled = 0
        self._sent: list[Pending] = []

    def add(self, parameters: int) -> None:
        self._filled += parameters
        if self._filled >= self._capacity:
            self.flush()

    def flush(self) -> None:
        if self._filled == 0:
            return
        count, self._filled = self._filled, 0
        id = f"i{self._iteration}.mlp_gradient.{self._count}"
        self._count += 1
        gradient = payload.reduction_input(count, self._world.rank, self._dtype)
        ranks = self._world.size
        pending = self._world.post(
            id,
            "all_reduce",
            "mlp_gradient",
            count * self._item_bytes,
            self._iteration,
            lambda group: dist.all_reduce(gradient, group=group, async_op=True),
            lambda: payload.check_reduction(id, gradient, ranks),
            element_bytes=self._item_bytes,
        )
        if self._overlap:
            self._sent.append(pending)
        else:
            self._world.wait(pending)

    def wait(self) -> None:
        for pending in self._sent:
            self._world.wait(pending)


def _all_to_all(model: DlrmModel, world: Communicator, iteration: int, phase: str) -> Pending:
    dtype = DTYPES[model.spec.dtype]
    part = model.exchanged // world.size
    id = f"i{iteration}.{phase}.0"
    sent = payload.blocks(part, payload.codes_from(world.rank, world.size), dtype)
    received = torch.empty_like(sent)
    return world.post(
        id,
        "all_to_all",
        phase,
        model.exchanged * model.item_bytes,
        iteration,
        lambda group: dist.all_to_all_single(received, sent, group=group, async_op=True),
        lambda: payload.check_blocks(id, received, payload.codes_to(world.rank, world.size)),
        element_bytes=model.item_bytes,
    )


def run_dlrm(
    spec: DlrmWorkload,
    world: Communicator,
    compute: Compute,
    log: EventLog,
    on_iteration: Callable[[int], None],
) -> None:
    """Run all iterations. Raises payload.WrongResult when a collective delivered wrong numbers."""
    model = DlrmModel(spec)
    for iteration in range(spec.iterations):
        world.align(iteration)
        on_iteration(iteration)
        start_ns = now_ns()
        _step(model, world, compute, iteration)
        log.iteration(iteration, start_ns, now_ns())


def _step(model: DlrmModel, world: Communicator, compute: Compute, iteration: int) -> None:
    spec, item_bytes = model.spec, model.item_bytes

    def work(name: str, phase: str, flops: int, moved_bytes: int) -> None:
        compute.run(name, phase, iteration, flops, moved_bytes, item_bytes)

    def pass_layers(layers: Iterable[Layer], phase: str, products: int) -> Iterator[Layer]:
        for layer in layers:
            flops = products * layer.flops(spec.batch_size)
            work(
                layer.name, phase, flops, products * layer.moved_bytes(spec.batch_size, item_bytes)
            )
            yield layer

    def forward(layers: tuple[Layer, ...]) -> None:
        for _ in pass_layers(layers, "mlp_forward", 1):
            pass

    buckets = _Buckets(model, world, iteration)

    def backward(layers: tuple[Layer, ...]) -> None:
        # Two products of the forward's size: gradients by weights and by inputs.
        for layer in pass_layers(reversed(layers), "mlp_backward", 2):
            buckets.add(layer.parameters)

    def exchange(phase: str) -> Pending | None:
        pending = _all_to_all(model, world, iteration, phase)
        if spec.overlap:
            return pending
        world.wait(pending)
        return None

    vectors_bytes = model.exchanged * item_bytes

    work("embedding_lookup", "embedding_forward", 0, model.look_up_bytes)
    embeddings = exchange("embedding_forward")
    forward(model.bottom)
    if embeddings is not None:
        world.wait(embeddings)
    work("interaction", "interaction_forward", model.interaction_flops, vectors_bytes)
    forward(model.top)

    backward(model.top)
    work("interaction", "interaction_backward", 2 * model.interaction_flops, 2 * vectors_bytes)
    gradients = exchange("embedding_backward")
    backward(model.bottom)
    buckets.flush()
    if gradients is not None:
        world.wait(gradients)
    # Each looked-up row is read, changed and written.
    work("embedding_update", "update", 0, 2 * model.look_up_bytes)
    buckets.wait()
    # Plain SGD: read the parameter and its gradient, write the parameter.
    work("sgd", "update", 2 * model.parameters, 3 * model.parameters * item_bytes)
