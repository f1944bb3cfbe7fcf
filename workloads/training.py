"""Training steps of a transformer under tensor, pipeline and data parallelism.

The schedule is GPipe's (Huang et al., NeurIPS 2019): all microbatches forward, then all
backward. Each layer all-reduces its activations twice per direction among the tensor-parallel
ranks (Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3); stages hand activations on by
send/recv; gradients are all-reduced in buckets among the data-parallel ranks, overlapping the
last microbatch's backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from topologies.training_model import Stage, data_groups, tensor_groups
from topologies.workload_spec import ITEM_BYTES, TrainingWorkload
from workloads import payload
from workloads.clock import now_ns
from workloads.communicator import Communicator, Pending, subgroups
from workloads.compute_model import Compute
from workloads.events import EventLog
from workloads.operations import DTYPES


def run_training(
    spec: TrainingWorkload,
    world: Communicator,
    compute: Compute,
    log: EventLog,
    on_iteration: Callable[[int], None],
) -> None:
    """Run all iterations. Raises payload.WrongResult when a collective delivered wrong numbers."""
    me, count = world.rank, world.size
    tensor = data = None
    if spec.parallelism.tensor > 1:
        tensor = subgroups(log, "tensor", tensor_groups(spec), me, count)
    if spec.parallelism.data > 1:
        data = subgroups(log, "data", data_groups(spec), me, count)
    for iteration in range(spec.iterations):
        world.align(iteration)
        on_iteration(iteration)
        start_ns = now_ns()
        _Step(Stage(spec, me), world, tensor, data, compute, iteration).run()
        log.iteration(iteration, start_ns, now_ns())


class _Step:
    """One training step of one rank."""

    def __init__(
        self,
        stage: Stage,
        world: Communicator,
        tensor: Communicator | None,
        data: Communicator | None,
        compute: Compute,
        iteration: int,
    ) -> None:
        self._stage = stage
        self._world = world
        self._tensor = tensor
        self._data = data
        self._compute = compute
        self._iteration = iteration
        self._dtype = DTYPES[stage.spec.dtype]
        self._item_bytes = ITEM_BYTES[stage.spec.dtype]
        self._reduced = 0
        self._filled = 0
        self._gradients: list[Pending] = []

    def run(self) -> None:
        stage = self._stage
        sends: list[Pending] = []
        for microbatch in range(stage.spec.microbatches):
            if not stage.first:
                self._receive("forward", microbatch, -stage.stride)
            for layer in range(stage.layers):
                self._layer("forward", microbatch, layer, 1)
            if stage.last:
                self._head("forward", 1)
            else:
                sends.append(self._send("forward", microbatch, stage.stride))
        for microbatch in range(stage.spec.microbatches):
            final = microbatch == stage.spec.microbatches - 1
            if stage.last:
                self._head("backward", 2)
                if final:
                    self._fill(stage.head_parameters)
            else:
                self._receive("backward", microbatch, stage.stride)
            for layer in reversed(range(stage.layers)):
                self._layer("backward", microbatch, layer, 2)
                if final:
                    self._fill(stage.layer_parameters)
            if not stage.first:
                sends.append(self._send("backward", microbatch, -stage.stride))
        self._flush()
        for pending in sends:
            self._world.wait(pending)
        if self._data is not None:
            for pending in self._gradients:
                self._data.wait(pending)
        parameters = stage.layers * stage.layer_parameters
        self._work("sgd", "update", 2 * parameters, 3 * parameters * self._item_bytes)

    def _work(self, name: str, phase: str, flops: int, moved_bytes: int) -> None:
        self._compute.run(name, phase, self._iteration, flops, moved_bytes, self._item_bytes)

    def _layer(self, direction: str, microbatch: int, layer: int, products: int) -> None:
        """Attention, then feed-forward, each ended by a tensor-parallel all-reduce."""
        stage = self._stage
        for half in ("attention", "feed_forward"):
            moved = self._item_bytes * (stage.layer_parameters // 2 + 2 * stage.activation)
            self._work(
                f"layer{layer}_{half}",
                direction,
                products * stage.layer_flops // 2,
                products * moved,
            )
            if self._tensor is not None:
                id = f"i{self._iteration}.tensor_{direction}.{microbatch}.{layer}.{half}"
                pending = self._all_reduce(
                    self._tensor, id, f"tensor_{direction}", stage.activation
                )
                self._tensor.wait(pending)

    def _head(self, direction: str, products: int) -> None:
        stage = self._stage
        flops = 2 * stage.tokens * stage.head_parameters
        moved = self._item_bytes * (stage.head_parameters + stage.activation)
        self._work("head", direction, products * flops, products * moved)

    def _fill(self, parameters: int) -> None:
        self._filled += parameters
        if self._filled * self._item_bytes >= self._stage.spec.bucket_bytes:
            self._flush()

    def _flush(self) -> None:
        count, self._filled = self._filled, 0
        if self._data is None or count == 0:
            return
        id = f"i{self._iteration}.gradient.{self._reduced}"
        self._reduced += 1
        pending = self._all_reduce(self._data, id, "gradient", count)
        if self._stage.spec.overlap:
            self._gradients.append(pending)
        else:
            self._data.wait(pending)

    def _all_reduce(self, communicator: Communicator, id: str, phase: str, count: int) -> Pending:
        x = payload.reduction_input(count, communicator.rank, self._dtype)
        size = communicator.size
        return communicator.post(
            id,
            "all_reduce",
            phase,
            count * self._item_bytes,
            self._iteration,
            lambda group: dist.all_reduce(x, group=group, async_op=True),
            lambda: payload.check_reduction(id, x, size),
            element_bytes=self._item_bytes,
        )

    def _message_id(self, direction: str, microbatch: int, source: int) -> str:
        return f"i{self._iteration}.pipeline_{direction}.{microbatch}.{source}"

    def _send(self, direction: str, microbatch: int, distance: int) -> Pending:
        me = self._stage.rank
        peer = me + distance
        x = payload.blocks(self._stage.activation, [payload.block_code(me, peer)], self._dtype)
        return self._message(
            direction, microbatch, me, peer, lambda g: dist.isend(x, dst=peer, group=g), None
        )

    def _receive(self, direction: str, microbatch: int, distance: int) -> None:
        me = self._stage.rank
        peer = me + distance
        y = torch.empty(self._stage.activation, dtype=self._dtype)
        id = self._message_id(direction, microbatch, peer)
        pending = self._message(
            direction,
            microbatch,
            peer,
            me,
            lambda g: dist.irecv(y, src=peer, group=g),
            lambda: payload.check_blocks(id, y, [payload.block_code(peer, me)]),
        )
        self._world.wait(pending)

    def _message(
        self,
        direction: str,
        microbatch: int,
        source: int,
        destination: int,
        call: Callable[[dist.ProcessGroup | None], Any],
        verify: Callable[[], None] | None,
    ) -> Pending:
        return self._world.post(
            self._message_id(direction, microbatch, source),
            "send_recv",
            f"pipeline_{direction}",
            self._stage.activation * self._item_bytes,
            self._iteration,
            call,
            verify,
            counted=False,
            has_future=False,
            members=(source, destination),
            element_bytes=self._item_bytes,
            root=0,
            peer=1,
        )
