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

from collections.abc import Iterator

from topologies.dlrm_model import DlrmModel, Layer
from topologies.gradient_buckets import GradientBuckets
from topologies.step import Action, Collective, Kernel, Wait


def dlrm_step(model: DlrmModel) -> Iterator[Action]:
    """One iteration; the same on every rank."""
    overlap = model.spec.overlap
    vectors_bytes = model.exchanged * model.item_bytes
    buckets = GradientBuckets("mlp_gradient", "world", model.bucket_parameters, overlap=overlap)

    def exchange(phase: str) -> Iterator[Action]:
        yield Collective(f"{phase}.0", phase, "all_to_all", model.exchanged, "world")
        if not overlap:
            yield Wait(f"{phase}.0")

    def exchanged(phase: str) -> Iterator[Action]:
        if overlap:
            yield Wait(f"{phase}.0")

    def backward(layers: tuple[Layer, ...]) -> Iterator[Action]:
        for layer in reversed(layers):
            # Two products of the forward's size: gradients by weights and by inputs.
            yield _pass(model, layer, "mlp_backward", 2)
            yield from buckets.add(layer.parameters)

    yield Kernel("embedding_lookup", "embedding_forward", 0, model.look_up_bytes)
    yield from exchange("embedding_forward")
    for layer in model.bottom:
        yield _pass(model, layer, "mlp_forward", 1)
    yield from exchanged("embedding_forward")
    yield Kernel("interaction", "interaction_forward", model.interaction_flops, vectors_bytes)
    for layer in model.top:
        yield _pass(model, layer, "mlp_forward", 1)

    yield from backward(model.top)
    yield Kernel(
        "interaction", "interaction_backward", 2 * model.interaction_flops, 2 * vectors_bytes
    )
    yield from exchange("embedding_backward")
    yield from backward(model.bottom)
    yield from buckets.flush()
    yield from exchanged("embedding_backward")
    # Each looked-up row is read, changed and written.
    yield Kernel("embedding_update", "update", 0, 2 * model.look_up_bytes)
    yield from buckets.wait()
    # Plain SGD: read the parameter and its gradient, write the parameter.
    yield Kernel("sgd", "update", 2 * model.parameters, 3 * model.parameters * model.item_bytes)


def _pass(model: DlrmModel, layer: Layer, phase: str, products: int) -> Kernel:
    batch = model.spec.batch_size
    flops = products * layer.flops(batch)
    return Kernel(layer.name, phase, flops, products * layer.moved_bytes(batch, model.item_bytes))
