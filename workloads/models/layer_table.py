"""Training loops over a table of layers, as ASTRA-sim 1 defines them.

Source: ASTRA-sim 1.0, workload/Workload.cc (iterate_data_parallel, iterate_model_parallel,
iterate_hybrid_parallel_data_model, _model_data and _DLRM; decode_involved_dimensions).

All loops post a layer's gradients without waiting, and wait for them where the next pass needs
them: before the layer's forward computation, with its update. ASTRA-sim lets updates run beside
computation; here the rank does them, then.

data          forward: compute; backward: weight gradient, its all-reduce, input gradient
model         forward: compute, collective, wait; backward: input gradient, its collective, weight
              gradient, wait for the former
hybrid-*      as model, and weight gradients are reduced among the ranks of the other dimension;
              microbatches, stages of a pipeline and parameters that are spread are ours
weight-streaming  (ours) rank 0 broadcasts a layer's weights before its forward and before its
              backward pass, a layer ahead, and gets the sum of its gradients; all of a pass's
              before the next one begins
hybrid-dlrm   as data; the embedding's AlltoAll is awaited after the bottom MLP, and that of its
              gradients, posted after the top MLP, when all is done

Stages of a pipeline run 1F1B (Narayanan et al., PipeDream, SOSP 2019): as many microbatches forward
as there are stages behind, then one backward and one forward in turn, then those that are left
backward. Nobody waits until a message is sent; messages are received from one pass ahead on.
Parameters are gathered a layer ahead, also across passes.

With `overlap: false` all of them are LIBRA's loop (astra-sim/libra, inputs/training_loop/
no_overlap.py): forward, then backward, each layer's input gradient before its weight gradient, and
every collective is awaited at once, the first layer's, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from collectives.kinds import Kind, rounded_elements
from topologies.spec.layers_section import LayerPass, LayersWorkload
from topologies.spec.workload_types import GroupName
from workloads.models.step import Action, Pause, StartCollective, StartMessage, WaitFor

Pass = tuple[Literal["forward", "backward"], int]
"""A pass of a stage's layers, and its microbatch."""


def layer_steps(workload: LayersWorkload, rank: int) -> Iterator[Action]:
    """All passes of a rank; the same on every rank of a stage, but for whom it exchanges with."""
    return _Loop(workload, rank).run()


def stage_passes(stage: int, stages: int, microbatches: int) -> tuple[Pass, ...]:
    """The passes of a pipeline's stage, in its order (1F1B)."""
    ahead = min(stages - 1 - stage, microbatches)
    order: list[Pass] = [("forward", number) for number in range(ahead)]
    for number in range(microbatches):
        if ahead + number < microbatches:
            order.append(("forward", ahead + number))
        order.append(("backward", number))
    return tuple(order)


class _Loop:
    def __init__(self, workload: LayersWorkload, rank: int) -> None:
        self._workload = workload
        self._rank = rank
        self._stride = workload.ranks // workload.stages
        self._layers = workload.layers
        self._sizes = {name: len(parts[0]) for name, parts in workload.groups_of_ranks().items()}
        self._under_way: dict[str, None] = {}

    def run(self) -> Iterator[Action]:
        strategy = self._workload.parallelism
        for number in range(self._workload.passes):
            if strategy == "weight-streaming":
                yield from self._streaming(number)
            elif not self._workload.overlap:
                yield from self._one_by_one(number)
            elif strategy == "data":
                yield from self._data(number)
            elif strategy == "hybrid-dlrm":
                yield from self._dlrm(number)
            else:
                yield from self._model(number)
        for index in range(len(self._layers)):
            yield from self._update(index, self._workload.passes * self._workload.microbatches)
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
        microbatches, stages = self._workload.microbatches, self._workload.stages
        passes = stage_passes(self._rank // self._stride, stages, microbatches)
        yield from self._receive(passes[0], number)
        yield from self._gather(passes, 0, 0, number)
        for position, one in enumerate(passes):
            direction, microbatch = one
            if position + 1 < len(passes):
                yield from self._receive(passes[position + 1], number)
            yield from self._wait(self._handed(one, number, self._source(direction)))
            places = range(len(self._layers))
            for turn, index in enumerate(places if direction == "forward" else reversed(places)):
                yield from self._wait(self._gathered(one, number, index))
                yield from self._gather(passes, position, turn + 1, number)
                at = number * microbatches + microbatch
                if direction == "forward":
                    yield from self._update(index, at)
                    yield from self._forward(at, index)
                else:
                    yield from self._backward(at, index, microbatch == microbatches - 1)
            yield from self._hand_on(one, number)

    def _forward(self, number: int, index: int) -> Iterator[Action]:
        yield from self._compute("forward", index)
        yield from self._post("forward", number, index)
        yield from self._wait(self._name("forward", number, index))

    def _backward(self, number: int, index: int, last: bool) -> Iterator[Action]:
        yield from self._compute("input_gradient", index)
        if index:
            yield from self._post("input_gradient", number, index)
        yield from self._compute("weight_gradient", index)
        if last and self._workload.parallelism != "model":
            yield from self._post("weight_gradient", number, index)
        yield from self._wait(self._name("input_gradient", number, index))

    def _source(self, direction: str) -> int | None:
        """The rank that hands this one a microbatch in a pass; None at the pipeline's end."""
        source = self._rank + (-self._stride if direction == "forward" else self._stride)
        return source if 0 <= source < self._workload.ranks else None

    def _receive(self, one: Pass, number: int) -> Iterator[Action]:
        source = self._source(one[0])
        if source is not None:
            yield self._message(one, number, source, self._rank)

    def _hand_on(self, one: Pass, number: int) -> Iterator[Action]:
        destination = self._rank + (self._stride if one[0] == "forward" else -self._stride)
        if 0 <= destination < self._workload.ranks:
            yield self._message(one, number, self._rank, destination)

    def _message(self, one: Pass, number: int, source: int, destination: int) -> StartMessage:
        name = self._handed(one, number, source)
        self._under_way[name] = None
        elements = max(1, self._workload.activation_bytes // self._workload.item_bytes)
        return StartMessage(name, f"pipeline_{one[0]}", elements, source, destination)

    def _handed(self, one: Pass, number: int, source: int | None) -> str:
        return f"pipeline_{one[0]}.{number}.{one[1]}.{source}"

    def _gather(
        self, passes: tuple[Pass, ...], position: int, turn: int, number: int
    ) -> Iterator[Action]:
        """Gather the parameters of the layer that has its turn; after the last that of the first in
        the next pass."""
        count = len(self._layers)
        position, turn = (position + 1, 0) if turn == count else (position, turn)
        if position == len(passes):
            return
        one = passes[position]
        index = turn if one[0] == "forward" else count - 1 - turn
        size_bytes = self._layers[index].parameter_shard_bytes
        if size_bytes:
            name = self._gathered(one, number, index)
            phase = f"parameters_{one[0]}"
            yield from self._start(name, phase, Kind.ALL_GATHER, size_bytes, "data")

    def _gathered(self, one: Pass, number: int, index: int) -> str:
        return f"parameters_{one[0]}.{number}.{one[1]}.{index}.{self._layers[index].name}"

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

    def _streaming(self, number: int) -> Iterator[Action]:
        places = range(len(self._layers))
        turns = [("forward", index) for index in places]
        turns += [("backward", index) for index in reversed(places)]
        ahead = int(self._workload.overlap)
        for direction, index in turns[:ahead]:
            yield from self._stream(direction, number, index)
        for turn, (direction, index) in enumerate(turns):
            if not ahead:
                yield from self._stream(direction, number, index)
            yield from self._wait(self._streamed(direction, number, index))
            for one in turns[turn + 1 : turn + 1 + ahead]:
                yield from self._stream(one[0], number, one[1])
            if direction == "forward":
                if self._rank:
                    yield from self._compute("forward", index)
                continue
            if self._rank:
                yield from self._compute("input_gradient", index)
                yield from self._compute("weight_gradient", index)
            name, size_bytes = self._name("weight_gradient", number, index), self._weights(index)
            yield from self._start(name, "weight_gradient", Kind.REDUCE, size_bytes, "world")
            if not ahead:
                yield from self._wait(name)
        for index in reversed(places):
            yield from self._wait(self._name("weight_gradient", number, index))
            update_ns = self._layers[index].update_ns
            if update_ns and not self._rank:
                yield Pause(self._layers[index].name, "update", update_ns)

    def _stream(self, direction: str, number: int, index: int) -> Iterator[Action]:
        name, phase = self._streamed(direction, number, index), f"weights_{direction}"
        yield from self._start(name, phase, Kind.BROADCAST, self._weights(index), "world")

    def _streamed(self, direction: str, number: int, index: int) -> str:
        return f"weights_{direction}.{number}.{index}.{self._layers[index].name}"

    def _weights(self, index: int) -> int:
        return self._layers[index].weights_bytes

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
        group: GroupName = "world"
        if self._sizes:
            group = "data" if phase == "weight_gradient" else "model"
        if part.collective is not None:
            name, kind = self._name(phase, number, index), Kind(part.collective)
            yield from self._start(name, phase, kind, part.size_bytes, group)

    def _start(
        self, name: str, phase: str, kind: Kind, brought_bytes: int, group: GroupName
    ) -> Iterator[Action]:
        ranks = self._sizes.get(group, self._workload.ranks)
        if ranks < 2:
            return
        # A table counts what a rank brings; the size of an all-gather is all that comes together.
        size_bytes = brought_bytes * kind.traits.contributions(ranks)
        elements = rounded_elements(kind, size_bytes, ranks, self._workload.item_bytes)
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
