"""Training loops over a table of layers, as ASTRA-sim 1 defines them.

Source: ASTRA-sim 1.0, workload/Workload.cc (iterate_data_parallel, iterate_model_parallel,
iterate_hybrid_parallel_data_model, _model_data and _DLRM; decode_involved_dimensions).

All loops post a layer's gradients without waiting, and wait for them where the next pass needs
them: before the layer's forward computation, with its update. ASTRA-sim lets updates run beside
computation; here the rank does them, then.

data          forward: compute; backward: weight gradient, its all-reduce, input gradient
model         forward: compute, collective, wait; backward: input gradient, its collective, weight
              gradient, wait for the former
hybrid-*      as model, and weight gradients are reduced among the ranks of the other dimension
hybrid-dlrm   as data; the embedding's AlltoAll is awaited after the bottom MLP, and that of its
              gradients, posted after the top MLP, when all is done

With `overlap: false` all of them are LIBRA's loop (astra-sim/libra, inputs/training_loop/
no_overlap.py): forward, then backward, each layer's input gradient before its weight gradient, and
every collective is awaited at once, the first layer's, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from collectives.kinds import Kind, rounded_elements
from topologies.spec.layers_section import LayerPass, LayersWorkload
from topologies.spec.workload_section import ITEM_BYTES
from workloads.models.step import Action, GroupName, Pause, StartCollective, WaitFor


def layer_groups(workload: LayersWorkload) -> dict[GroupName, list[list[int]]]:
    """The groups of ranks that exchange activations and those that reduce gradients, where these
    are not all ranks. Neighbours are in the innermost dimension."""
    ranks, inner = workload.ranks, workload.innermost
    if inner is None:
        return {}
    inside = [list(range(first, first + inner)) for first in range(0, ranks, inner)]
    across = [list(range(first, ranks, inner)) for first in range(inner)]
    if workload.parallelism == "hybrid-data-model":
        return {"model": inside, "data": across}
    return {"model": across, "data": inside}


def layer_steps(workload: LayersWorkload) -> Iterator[Action]:
    """All passes; the same on every rank."""
    return _Loop(workload).run()


class _Loop:
    def __init__(self, workload: LayersWorkload) -> None:
        self._workload = workload
        self._layers = workload.layers
        self._sizes = {name: len(parts[0]) for name, parts in layer_groups(workload).items()}
        self._under_way: dict[str, None] = {}

    def run(self) -> Iterator[Action]:
        strategy = self._workload.parallelism
        for number in range(self._workload.passes):
            if not self._workload.overlap:
                yield from self._one_by_one(number)
            elif strategy == "data":
                yield from self._data(number)
            elif strategy == "hybrid-dlrm":
                yield from self._dlrm(number)
            else:
                yield from self._model(number)
        for index in range(len(self._layers)):
            yield from self._update(index, self._workload.passes)
        for name in list(self._under_way):
            yield from self._wait(name)

    def _data(self, number: int) -> Iterator[Action]:
        for index in range(len(self._layers)):
            yield from self._update(index, number)
            yield from self._compute("forward", index)
        for index in reversed(range(len(self._layers))):
            yield from self._compute("weight_gradient", index)
            yield from self._post("weight_gradient", number, index)
            if index:
                yield from self._compute("input_gradient", index)

    def _model(self, number: int) -> Iterator[Action]:
        for index in range(len(self._layers)):
            yield from self._update(index, number)
            yield from self._compute("forward", index)
            yield from self._post("forward", number, index)
            yield from self._wait(self._name("forward", number, index))
        for index in reversed(range(len(self._layers))):
            yield from self._compute("input_gradient", index)
            if index:
                yield from self._post("input_gradient", number, index)
            yield from self._compute("weight_gradient", index)
            if self._workload.parallelism != "model":
                yield from self._post("weight_gradient", number, index)
            yield from self._wait(self._name("input_gradient", number, index))

    def _dlrm(self, number: int) -> Iterator[Action]:
        last_bottom = self._workload.last_bottom_layer
        for index, layer in enumerate(self._layers):
            yield from self._update(index, number)
            yield from self._compute("forward", index)
            if layer.forward.collective == "all_to_all":
                yield from self._post("forward", number, index)
            elif index == last_bottom:
                yield from self._wait(self._name("forward", number, 0))
        for index in reversed(range(len(self._layers))):
            yield from self._compute("weight_gradient", index)
            yield from self._post("weight_gradient", number, index)
            yield from self._wait(self._name("input_gradient", number, index))
            if index:
                yield from self._compute("input_gradient", index)
            if last_bottom is not None and index == last_bottom + 1:
                yield from self._post("input_gradient", number, 0)

    def _one_by_one(self, number: int) -> Iterator[Action]:
        for index in range(len(self._layers)):
            yield from self._alone("forward", number, index)
        for index in reversed(range(len(self._layers))):
            yield from self._alone("input_gradient", number, index)
            yield from self._alone("weight_gradient", number, index)
            layer = self._layers[index]
            if layer.update_ns:
                yield Pause(layer.name, "update", layer.update_ns)

    def _alone(self, phase: str, number: int, index: int) -> Iterator[Action]:
        """A pass of a layer, its collective awaited."""
        yield from self._compute(phase, index)
        unused = {"data": ("forward", "input_gradient"), "model": ("weight_gradient",)}
        if phase not in unused.get(self._workload.parallelism, ()):
            yield from self._post(phase, number, index)
            yield from self._wait(self._name(phase, number, index))

    def _update(self, index: int, number: int) -> Iterator[Action]:
        """Wait for a layer's gradients of the pass before, and use them."""
        name = self._name("weight_gradient", number - 1, index)
        if name in self._under_way:
            yield from self._wait(name)
            layer = self._layers[index]
            if layer.update_ns:
                yield Pause(layer.name, "update", layer.update_ns)

    def _compute(self, phase: str, index: int) -> Iterator[Action]:
        duration_ns = self._part(phase, index).compute_ns
        if duration_ns:
            yield Pause(self._layers[index].name, phase, duration_ns)

    def _post(self, phase: str, number: int, index: int) -> Iterator[Action]:
        part = self._part(phase, index)
        groups = self._sizes
        group: GroupName = "world"
        if groups:
            group = "data" if phase == "weight_gradient" else "model"
        ranks = groups.get(group, self._workload.ranks)
        if part.collective is None or ranks < 2:
            return
        kind = Kind(part.collective)
        # A table counts what a rank brings; the size of an all-gather is all that comes together.
        size_bytes = part.size_bytes * kind.traits.contributions(ranks)
        elements = rounded_elements(kind, size_bytes, ranks, ITEM_BYTES[self._workload.dtype])
        name = self._name(phase, number, index)
        self._under_way[name] = None
        yield StartCollective(name, phase, kind, elements, group)

    def _wait(self, name: str) -> Iterator[Action]:
        if name in self._under_way:
            del self._under_way[name]
            yield WaitFor(name)

    def _part(self, phase: str, index: int) -> LayerPass:
        part: LayerPass = getattr(self._layers[index], phase)
        return part

    def _name(self, phase: str, number: int, index: int) -> str:
        return f"{phase}.{number}.{index}.{self._layers[index].name}"
