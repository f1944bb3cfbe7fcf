"""The graphs that a spec implies, before it runs: one iteration, communication without times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analysis.chakra.errors import ChakraError
from analysis.chakra.files import read_graphs
from analysis.chakra.graph import Graph
from analysis.chakra.program import Program
from analysis.chakra.training_step import training_step
from analysis.predictors.planned import planned_calls
from topologies.dlrm_model import DlrmModel, Layer
from topologies.spec import Spec
from topologies.workload_spec import ChakraWorkload, CollectivesWorkload, DlrmWorkload


def graphs_of_spec(spec: Spec) -> list[Graph]:
    """Every rank's graph of one iteration; computation takes what the spec's roofline says.

    Raises ChakraError for compute.device: real.
    """
    workload = spec.workload
    if isinstance(workload, ChakraWorkload):
        return read_graphs(workload.path)
    if isinstance(workload, CollectivesWorkload):
        program = Program(spec.compute)
        for planned in planned_calls(spec):
            program.wait(program.post(planned.name, planned.call))
        return [program.graph()] * workload.ranks
    if spec.compute.device == "real":
        raise ChakraError(
            spec.name,
            None,
            "compute.device is real: only a run shows how long that takes; run it and export the "
            "run",
        )
    if isinstance(workload, DlrmWorkload):
        return [_DlrmStep(spec, workload).run().graph()] * workload.ranks
    return [training_step(workload, rank, spec.compute).graph() for rank in range(workload.ranks)]


class _DlrmStep:
    """The step of workloads/dlrm.py."""

    def __init__(self, spec: Spec, workload: DlrmWorkload) -> None:
        self._program = Program(spec.compute)
        self._workload = workload
        self._model = DlrmModel(workload)
        self._calls = {planned.name: planned.call for planned in planned_calls(spec)}
        self._buckets: list[int] = []
        self._sent = 0
        self._filled = 0

    def run(self) -> Program:
        model = self._model
        vectors_bytes = model.exchanged * model.item_bytes
        self._compute("embedding_forward.embedding_lookup", 0, model.look_up_bytes)
        embeddings = self._post("embedding_forward.0")
        for _ in self._layers(model.bottom, "mlp_forward", 1):
            pass
        self._program.wait(embeddings)
        self._compute("interaction_forward.interaction", model.interaction_flops, vectors_bytes)
        for _ in self._layers(model.top, "mlp_forward", 1):
            pass
        self._backward(model.top)
        self._compute(
            "interaction_backward.interaction", 2 * model.interaction_flops, 2 * vectors_bytes
        )
        gradients = self._post("embedding_backward.0")
        self._backward(model.bottom)
        if self._filled:
            self._send()
        self._program.wait(gradients)
        self._compute("update.embedding_update", 0, 2 * model.look_up_bytes)
        for bucket in self._buckets:
            self._program.wait(bucket)
        self._compute("update.sgd", 2 * model.parameters, 3 * model.parameters * model.item_bytes)
        return self._program

    def _compute(self, name: str, flops: int, memory_bytes: int) -> None:
        self._program.compute(name, flops, memory_bytes, self._model.item_bytes)

    def _post(self, name: str) -> int:
        id = self._program.post(name, self._calls[name])
        if not self._workload.overlap:
            self._program.wait(id)
        return id

    def _layers(self, layers: Iterable[Layer], phase: str, products: int) -> Iterator[Layer]:
        batch, item_bytes = self._workload.batch_size, self._model.item_bytes
        for layer in layers:
            self._compute(
                f"{phase}.{layer.name}",
                products * layer.flops(batch),
                products * layer.moved_bytes(batch, item_bytes),
            )
            yield layer

    def _backward(self, layers: tuple[Layer, ...]) -> None:
        for layer in self._layers(reversed(layers), "mlp_backward", 2):
            self._filled += layer.parameters
            if self._filled >= self._model.bucket_parameters:
                self._send()

    def _send(self) -> None:
        self._filled = 0
        self._buckets.append(self._post(f"mlp_gradient.{self._sent}"))
        self._sent += 1
