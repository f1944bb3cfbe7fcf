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
Parameters are gathered a layer ahead, also across passes. With virtual stages they run interleaved
1F1B (Narayanan et al., SC 2021, section 2.2; torch's ScheduleInterleaved1F1B): as many microbatches
as there are stages go through a stage's first part, then through its second, and so on.

With `overlap: false` all of them are LIBRA's loop (astra-sim/libra, inputs/training_loop/
no_overlap.py): forward, then backward, each layer's input gradient before its weight gradient, and
every collective is awaited at once, the first layer's, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from collectives.kinds import Kind, rounded_elements
from topologies.spec.layers_section import LayerPass, LayersWorkload
from topologies.spec.workload_types import GroupName
from workloads.models.step import Action, Pause, StartCollective, StartMessage, WaitFor


class Pass(NamedTuple):
    """A pass of a microbatch through a stage's layers, or through one part of them."""

    direction: Literal["forward", "backward"]
    microbatch: int
    part: int = 0


def layer_steps(workload: LayersWorkload, rank: int) -> Iterator[Action]:
    """All passes of a rank; the same on every rank of a stage, but for whom it exchanges with."""
    return _Loop(workload, rank).run()


def stage_passes(stage: int, stages: int, microbatches: int, parts: int = 1) -> tuple[Pass, ...]:
    """The passes of a pipeline's stage, in its order: 1F1B, interleaved where its layers are
    several parts."""
    behind, together = stages - 1 - stage, microbatches
    if parts > 1:
        behind, together = 2 * behind + (parts - 1) * stages, stages
    turns = [
        (first + within, part)
        for first in range(0, microbatches, together)
        for part in range(parts)
        for within in range(together)
    ]
    ahead = min(behind, len(turns))
    order = [Pass("forward", *turn) for turn in turns[:ahead]]
    for number, (microbatch, part) in enumerate(turns):
        if ahead + number < len(turns):
            order.append(Pass("forward", *turns[ahead + number]))
        order.append(Pass("backward", microbatch, parts - 1 - part))
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
        parts = self._workload.virtual_stages
        passes = stage_passes(self._rank // self._stride, stages, microbatches, parts)
        yield from self._receive(passes[0], number)
        yield from self._gather(passes, 0, 0, number)
        for position, one in enumerate(passes):
            direction, microbatch, _ = one
            if position + 1 < len(passes):
                yield from self._receive(passes[position + 1], number)
            yield from self._wait(self._handed(one, number, self._source(one)))
            for turn, index in enumerate(self._places(one)):
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

    def _places(self, one: Pass) -> Sequence[int]:
        """The layers of a pass, in its order."""
        each = len(self._layers) // self._workload.virtual_stages
        places = range(one.part * each, (one.part + 1) * each)
        return places if one.direction == "forward" else places[::-1]

    def _source(self, one: Pass) -> int | None:
        """The rank that hands this one a microbatch in a pass; None at the pipeline's end."""
        forward = one.direction == "forward"
        source = self._rank + (-self._stride if forward else self._stride)
        if 0 <= source < self._workload.ranks:
            return source
        # The first part of all stages comes before their second.
        last = 0 if forward else self._workload.virtual_stages - 1
        return None if one.part == last else source % self._workload.ranks

    def _receive(self, one: Pass, number: int) -> Iterator[Action]:
        source = self._source(one)
        if source is not None:
            yield self._message(one, number, source, self._rank)

    def _hand_on(self, one: Pass, number: int) -> Iterator[Action]:
        forward, ranks = one.direction == "forward", self._workload.ranks
        destination = self._rank + (self._stride if forward else -self._stride)
        if not 0 <= destination < ranks:
            # A message is named by the part that gets it.
            one = one._replace(part=one.part + (1 if forward else -1))
            if not 0 <= one.part < self._workload.virtual_stages:
                return
        yield self._message(one, number, self._rank, destination % ranks)

    def _message(self, one: Pass, number: int, source: int, destination: int) -> StartMessage:
        name = self._handed(one, number, source)
        self._under_way[name] = None
        elements = max(1, self._workload.activation_bytes // self._workload.item_bytes)
        return StartMessage(name, f"pipeline_{one.direction}", elements, source, destination)

    def _handed(self, one: Pass, number: int, source: int | None) -> str:
        of_part = f".{one.part}" if self._workload.virtual_stages > 1 else ""
        return f"pipeline_{one.direction}.{number}.{one.microbatch}.{source}{of_part}"

    def _gather(
        self, passes: tuple[Pass, ...], position: int, turn: int, number: int
    ) -> Iterator[Action]:
        """Gather the parameters of the layer that has its turn; after the last that of the first in
        the next pass."""
        count = len(self._layers) // self._workload.virtual_stages
        position, turn = (position + 1, 0) if turn == count else (position, turn)
        if position == len(passes):
            return
        one = passes[position]
        index = self._places(one)[turn]
        size_bytes = self._layers[index].parameter_shard_bytes
        if size_bytes:
            name = self._gathered(one, number, index)
            phase = f"parameters_{one.direction}"
            yield from self._start(name, phase, Kind.ALL_GATHER, size_bytes, "data")

    def _gathered(self, one: Pass, number: int, index: int) -> str:
        layer = self._layers[index].name
        return f"parameters_{one.direction}.{number}.{one.microbatch}.{index}.{layer}"

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
