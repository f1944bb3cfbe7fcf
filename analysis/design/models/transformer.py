"""A transformer's iteration on one host, as COMET goes about it: layers, the strategy, a host's
time by roofline, collectives, exposed communication. Equations of COMET's were not to be had: these
are Megatron's layers (Narayanan et al., SC 2021) and ZeRO's collectives, put together here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.design.models.demand import Demand, Traffic, Window
from analysis.design.models.footprint import (
    UPDATE_BYTES,
    layer_activation_bytes,
    state_bytes_per_parameter,
)
from analysis.design.models.host import Host, Kernel, product, time_of
from analysis.design.models.listed_work import merged, traffic_of
from analysis.design.models.messages import split_degrees
from analysis.design.network import Dimension
from analysis.design.point import Strategy, Work
from collectives.kinds import Kind
from topologies.spec.design.models import TransformerModel
from topologies.spec.workload_types import ITEM_BYTES

LAST_BACKWARD = "the last microbatch's backward pass"


def parameters(model: TransformerModel) -> float:
    """The parameters of the layers (12 h^2 each) and of the vocabulary."""
    return 12.0 * model.layers * model.hidden**2 + float(model.vocabulary) * model.hidden


def fits(model: TransformerModel, strategy: Strategy) -> bool:
    """Whether the degrees divide the model: hidden by tensor, layers by pipeline, samples by data
    and microbatches."""
    return not (
        model.hidden % strategy.tensor
        or model.layers % strategy.pipeline
        or model.batch_size % (strategy.data * strategy.microbatches)
    )


def layer_kernels(model: TransformerModel, samples: float, tensor: int) -> tuple[Kernel, ...]:
    """The forward pass of a layer for a microbatch: projections, attention, MLP; and two norms and
    two residual sums, which are memory traffic alone."""
    item = ITEM_BYTES[model.dtype]
    tokens, hidden = samples * model.sequence, float(model.hidden)
    scores = samples * model.heads * model.sequence**2 / tensor
    attention = Kernel(
        2 * tokens * model.sequence * hidden / tensor,
        item * (2 * tokens * hidden / tensor + scores),
        2,
    )
    return (
        product(tokens, hidden, 3 * hidden / tensor, item),
        attention,
        product(tokens, hidden / tensor, hidden, item),
        product(tokens, hidden, 4 * hidden / tensor, item),
        product(tokens, 4 * hidden / tensor, hidden, item),
        Kernel(0.0, 10 * item * tokens * hidden),
    )


def footprint_parts(model: TransformerModel, strategy: Strategy) -> tuple[tuple[str, float], ...]:
    """Bytes of a host, by part. A stage of a pipeline keeps the activations of as many microbatches
    as there are stages (1F1B)."""
    samples = model.batch_size / (strategy.data * strategy.microbatches)
    layers = model.layers // strategy.pipeline
    own = parameters(model) / (strategy.tensor * strategy.pipeline)
    kept = min(strategy.pipeline, strategy.microbatches)
    whole = layer_activation_bytes(
        samples, model.sequence, model.hidden, model.heads, strategy.tensor
    )
    if model.recompute:
        inputs = ITEM_BYTES[model.dtype] * samples * model.sequence * model.hidden
        activations = kept * layers * inputs + whole
    else:
        activations = kept * layers * whole
    states = own * state_bytes_per_parameter(strategy.zero, strategy.data)
    return (("model states", states), ("activations", activations))


@dataclass(frozen=True, slots=True)
class TransformerShare:
    """A host's work in an iteration: times of one of its `layers` for a microbatch, of the
    logits for one, and of the update; bytes of all its gradients, which are as many as its
    parameters, and of a microbatch's activations."""

    layers: int
    forward_ns: float
    backward_ns: float
    logits_ns: float
    update_ns: float
    gradient_bytes: float
    activation_bytes: float
    footprint: tuple[tuple[str, float], ...]

    @property
    def footprint_bytes(self) -> float:
        """The sum of all parts."""
        return sum(size for _, size in self.footprint)


def share_of_transformer(
    model: TransformerModel, strategy: Strategy, host: Host
) -> TransformerShare:
    """The share of each host. With recomputation the backward pass has the forward one in it."""
    item = ITEM_BYTES[model.dtype]
    samples = model.batch_size / (strategy.data * strategy.microbatches)
    tokens = samples * model.sequence
    own = parameters(model) / (strategy.tensor * strategy.pipeline)
    updated = own / (strategy.data if strategy.zero else 1)
    footprint = footprint_parts(model, strategy)
    footprint_bytes = sum(size for _, size in footprint)
    forward_ns = time_of(layer_kernels(model, samples, strategy.tensor), host, footprint_bytes)
    logits = product(tokens, model.hidden, model.vocabulary / strategy.tensor, item, 3)
    return TransformerShare(
        layers=model.layers // strategy.pipeline,
        forward_ns=forward_ns,
        backward_ns=(2 + recomputed(model)) * forward_ns,
        logits_ns=logits.time_ns(host, footprint_bytes),
        update_ns=Kernel(0.0, UPDATE_BYTES * updated).time_ns(host, footprint_bytes),
        gradient_bytes=item * own,
        activation_bytes=item * tokens * model.hidden,
        footprint=footprint,
    )


def recomputed(model: TransformerModel) -> int:
    """Forward passes that are computed again for a backward pass."""
    return 1 if model.recompute else 0


def work_of_transformer(
    model: TransformerModel, strategy: Strategy, host: Host, dimensions: Sequence[Dimension]
) -> Work | None:
    """An iteration; None when the degrees divide neither model nor dimensions."""
    sizes = [dimension.size for dimension in dimensions]
    parts = split_degrees((strategy.tensor, strategy.data, strategy.pipeline), sizes)
    if parts is None or not fits(model, strategy):
        return None
    tensor_group, data_group, pipeline_group = parts
    share = share_of_transformer(model, strategy, host)
    layers = share.layers
    rounds = strategy.microbatches + strategy.pipeline - 1
    pass_ns = share.forward_ns + share.backward_ns
    compute_ns = rounds * (layers * pass_ns + share.logits_ns) + share.update_ns

    activation, gradients = share.activation_bytes, share.gradient_bytes
    reduces = 2 * (2 + recomputed(model))
    hides = (layers - 1) / layers
    windows = [Window(hides * layers * share.backward_ns, LAST_BACKWARD)]
    tensor = traffic_of("tensor", Kind.ALL_REDUCE, activation, tensor_group, dimensions)
    traffic = [] if tensor is None else [replace(tensor, times=rounds * layers * reduces)]
    kind = Kind.REDUCE_SCATTER if strategy.zero else Kind.ALL_REDUCE
    reduced = traffic_of("data", kind, gradients, data_group, dimensions)
    if reduced is not None:
        # The layer whose gradients come last has nothing to hide them behind.
        traffic.append(replace(reduced, times=1 - hides))
        traffic.append(replace(reduced, times=hides, window=0))
    gathered = traffic_of("gathers", Kind.ALL_GATHER, gradients, data_group, dimensions)
    if strategy.zero == 3 and gathered is not None:
        passes_ns = (layers * share.forward_ns, layers * share.backward_ns)
        gathers = gathers_of(gathered, layers, passes_ns, rounds, len(windows))
        traffic += gathers.traffic
        windows += gathers.windows
    elif strategy.zero and gathered is not None:
        traffic.append(gathered)
    if strategy.pipeline > 1:
        sends = critical_sends(strategy.pipeline, strategy.microbatches)
        traffic.append(sends_of(activation, pipeline_group, dimensions, sends))
    demand = Demand(compute_ns, merged(traffic), tuple(windows))
    return Work(demand, share.footprint_bytes, share.footprint)


@dataclass(frozen=True, slots=True)
class Gathers:
    """Traffic, and the windows that it hides behind."""

    traffic: tuple[Traffic, ...]
    windows: tuple[Window, ...]


def gathers_of(
    whole: Traffic, layers: int, passes_ns: tuple[float, float], rounds: int, first: int
) -> Gathers:
    """The gathers of parameters that ZeRO's third stage spreads, each a layer ahead: `whole` is one
    of all layers, of which a forward and a backward pass of a microbatch needs one. `passes_ns` is
    what the two take; `first` is the index of the first window. Only the very first layer's is
    waited for. Those of the last backward pass share the network with the gradients' reduction."""
    forward_ns, backward_ns = passes_ns
    later = rounds - 1 / layers
    hidden = (
        (later, Window(later * forward_ns, "forward passes")),
        (1.0, Window(backward_ns, LAST_BACKWARD)),
        (rounds - 1.0, Window((rounds - 1) * backward_ns, "backward passes")),
    )
    traffic = [replace(whole, times=1 / layers)]
    traffic += [
        replace(whole, times=times, window=first + index)
        for index, (times, _) in enumerate(hidden)
        if times
    ]
    return Gathers(tuple(traffic), tuple(window for _, window in hidden))


def critical_sends(stages: int, microbatches: int) -> int:
    """Messages between stages that an iteration of a pipeline waits for, one after the other.

    The schedule is 1F1B (Narayanan et al., PipeDream, SOSP 2019; SC 2021): a stage runs as many
    microbatches forward as there are stages behind it, then one backward and one forward in turn.
    Nobody waits until a message is sent, and a message takes less than a pass. One in p of the m +
    p - 2 rounds that hand on has its message while the next stage still computes: found by
    following the schedule, as `tests/design/test_pipelines.py` does."""
    handing_on = microbatches + stages - 2
    return 2 * (handing_on - handing_on // stages)


def sends_of(
    size_bytes: float, group: Sequence[int], dimensions: Sequence[Dimension], times: float
) -> Traffic:
    """The bytes that a stage sends to the next, by the innermost dimension in which that is."""
    along = next(d for d, ranks in enumerate(group) if ranks > 1)
    sent = [0.0] * len(dimensions)
    sent[along] = size_bytes / dimensions[along].used
    return Traffic("pipeline", tuple(sent), times, dimensions[along].latency_ns)
