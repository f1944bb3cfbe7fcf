"""The step of workloads/training.py as a rank's program, before it runs."""

from __future__ import annotations

from analysis.chakra.program import Program
from analysis.predictors.interface import CollectiveCall
from topologies.compute_spec import ComputeSpec
from topologies.training_model import Stage, data_groups, tensor_groups
from topologies.workload_spec import ITEM_BYTES, TrainingWorkload


def training_step(workload: TrainingWorkload, rank: int, roofline: ComputeSpec) -> Program:
    """One training step of one rank."""
    step = _Step(workload, rank, roofline)
    step.run()
    return step.program


class _Step:
    def __init__(self, workload: TrainingWorkload, rank: int, roofline: ComputeSpec) -> None:
        self.program = Program(roofline)
        self._stage = Stage(workload, rank)
        self._item_bytes = ITEM_BYTES[workload.dtype]
        self._tensor = next(tuple(g) for g in tensor_groups(workload) if rank in g)
        self._data = next(tuple(g) for g in data_groups(workload) if rank in g)
        self._filled = 0
        self._gradients: list[int] = []

    def run(self) -> None:
        stage = self._stage
        sends: list[int] = []
        for microbatch in range(stage.spec.microbatches):
            if not stage.first:
                self.program.wait(self._message("forward", microbatch, -stage.stride, into=True))
            for layer in range(stage.layers):
                self._layer("forward", microbatch, layer, 1)
            if stage.last:
                self._head("forward", 1)
            else:
                sends.append(self._message("forward", microbatch, stage.stride, into=False))
        for microbatch in range(stage.spec.microbatches):
            final = microbatch == stage.spec.microbatches - 1
            if stage.last:
                self._head("backward", 2)
                if final:
                    self._fill(stage.head_parameters)
            else:
                self.program.wait(self._message("backward", microbatch, stage.stride, into=True))
            for layer in reversed(range(stage.layers)):
                self._layer("backward", microbatch, layer, 2)
                if final:
                    self._fill(stage.layer_parameters)
            if not stage.first:
                sends.append(self._message("backward", microbatch, -stage.stride, into=False))
        self._flush()
        for pending in (*sends, *self._gradients):
            self.program.wait(pending)
        parameters = stage.layers * stage.layer_parameters
        self._work("update.sgd", 2 * parameters, 3 * parameters * self._item_bytes)

    def _work(self, name: str, flops: int, moved_bytes: int) -> None:
        self.program.compute(name, flops, moved_bytes, self._item_bytes)

    def _layer(self, direction: str, microbatch: int, layer: int, products: int) -> None:
        stage = self._stage
        for half in ("attention", "feed_forward"):
            moved = self._item_bytes * (stage.layer_parameters // 2 + 2 * stage.activation)
            self._work(
                f"{direction}.layer{layer}_{half}",
                products * stage.layer_flops // 2,
                products * moved,
            )
            if len(self._tensor) > 1:
                name = f"tensor_{direction}.{microbatch}.{layer}.{half}"
                call = self._all_reduce(stage.activation, self._tensor)
                self.program.wait(self.program.post(name, call))

    def _head(self, direction: str, products: int) -> None:
        stage = self._stage
        flops = 2 * stage.tokens * stage.head_parameters
        moved = self._item_bytes * (stage.head_parameters + stage.activation)
        self._work(f"{direction}.head", products * flops, products * moved)

    def _fill(self, parameters: int) -> None:
        self._filled += parameters
        if self._filled * self._item_bytes >= self._stage.spec.bucket_bytes:
            self._flush()

    def _flush(self) -> None:
        count, self._filled = self._filled, 0
        if len(self._data) == 1 or count == 0:
            return
        name = f"gradient.{len(self._gradients)}"
        id = self.program.post(name, self._all_reduce(count, self._data))
        self._gradients.append(id)
        if not self._stage.spec.overlap:
            self.program.wait(id)

    def _all_reduce(self, count: int, ranks: tuple[int, ...]) -> CollectiveCall:
        return CollectiveCall("all_reduce", count * self._item_bytes, ranks, self._item_bytes)

    def _message(self, direction: str, microbatch: int, distance: int, *, into: bool) -> int:
        """Activations or their gradients, to or from the stage `distance` ranks away."""
        me = self._stage.rank
        source, destination = (me + distance, me) if into else (me, me + distance)
        call = CollectiveCall(
            "send_recv",
            self._stage.activation * self._item_bytes,
            (source, destination),
            self._item_bytes,
            peer=1,
        )
        return self.program.post(f"pipeline_{direction}.{microbatch}.{source}", call)
