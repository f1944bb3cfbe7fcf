"""A rank's share of a split network: real activations, from input to output.

Each rank knows what the whole, pruned network computes, as it computes it in double precision
beforehand: what arrives, and what the rank gives in the end, is held against that.
"""

from __future__ import annotations

import numpy as np
import torch

from topologies.spec.partition.section import PartitionedInferenceWorkload
from topologies.spec.workload_types import Dtype, GroupName
from workloads.execution.communicator import Communicator
from workloads.execution.operations import DTYPES
from workloads.execution.payload.numbers import WrongResult
from workloads.execution.rank_work import RankWork, Seat
from workloads.execution.step_runner import run_steps
from workloads.models.partition.network import KERNEL, Floats, Ints, Layer
from workloads.models.partition.objective import EVERYWHERE
from workloads.models.partition.split import SplitNetwork
from workloads.models.partition.split_file import read_split
from workloads.models.partition.step import OWN, inference_step, layer_of
from workloads.models.step import ComputeKernel, StartMessage

_ROUNDINGS = 16
"""By how many roundings of the largest number an activation may be off: sums of a few hundred
products are made in another order, and what is off goes through all layers. A unit that is missing
or another one's is off by a share of that number itself."""


class InferenceShare:
    """The neurons of one rank. Activations have the shape (samples, units, features)."""

    def __init__(self, split: SplitNetwork, rank: int, inputs: Floats, dtype: Dtype) -> None:
        self._split = split
        self._rank = rank
        self._dtype = DTYPES[dtype]
        first = split.network.layers[0]
        shaped = inputs.reshape(len(inputs), first.units_in, first.features_in)
        self.whole = _whole_activations(split, torch.from_numpy(shaped), self._dtype)
        self._values: list[torch.Tensor] = []
        self._sums: dict[int, torch.Tensor] = {}
        self._received: dict[str, torch.Tensor] = {}

    def begin(self) -> None:
        """Nothing is known but what the rank has of the inputs."""
        self._values = [torch.zeros_like(whole) for whole in self.whole]
        place = self._split.places[0]
        here = np.flatnonzero((place == self._rank) | (place == EVERYWHERE))
        self._values[0][:, here] = self.whole[0][:, here]

    def buffer(self, message: StartMessage) -> torch.Tensor:
        """The units that cross, sent from here or received."""
        units, number = self._crossing(message), layer_of(message.name)
        if message.source == self._rank:
            return self._at(number)[:, units].contiguous()
        shape = self.whole[number][:, units].shape
        self._received[message.name] = torch.empty(shape, dtype=self._dtype)
        return self._received[message.name]

    def check(self, message: StartMessage, id: str) -> None:
        """Hold what arrived against the whole network. Raises WrongResult."""
        units, number = self._crossing(message), layer_of(message.name)
        got = self._received.pop(message.name)
        self._compare(id, got, number, units)
        self._values[number][:, units] = got

    def work(self, kernel: ComputeKernel) -> None:
        """Add up what the rank's neurons make of its own or of received units."""
        number = layer_of(kernel.name)
        layer = self._split.network.layers[number]
        units = self._split.own(number, self._rank)
        if not kernel.name.endswith(OWN):
            needed = np.flatnonzero(self._split.needs[number][self._rank])
            units = np.setdiff1d(needed, units)
        neurons = self._split.neurons(number, self._rank)
        weights = torch.from_numpy(layer.weights[np.ix_(neurons, units)])
        part = _sums(layer, self._at(number)[:, units].float(), weights.float())
        if number not in self._sums:
            part = part + torch.from_numpy(layer.biases[neurons]).float()[:, None]
        self._sums[number] = self._sums.get(number, 0.0) + part

    def end(self, id: str) -> None:
        """Hold the rank's outputs against the whole network's. Raises WrongResult."""
        last = len(self._split.network.layers)
        neurons = self._split.neurons(last - 1, self._rank)
        self._compare(f"{id}.outputs", self._at(last)[:, neurons], last, neurons)

    def _at(self, number: int) -> torch.Tensor:
        """The activations that the rank has at a border between layers: its sums are all there by
        then."""
        sums = self._sums.pop(number - 1, None)
        if sums is not None:
            neurons = self._split.neurons(number - 1, self._rank)
            given = _given(self._split.network.layers[number - 1], sums)
            self._values[number][:, neurons] = given.to(self._dtype)
        return self._values[number]

    def _crossing(self, message: StartMessage) -> Ints:
        number = layer_of(message.name)
        return self._split.crossing(number, message.source, message.destination)

    def _compare(self, id: str, got: torch.Tensor, number: int, units: Ints) -> None:
        expected = self.whole[number][:, units]
        if not expected.numel():
            return
        largest = float(self.whole[number].abs().max())
        allowed = _ROUNDINGS * torch.finfo(self._dtype).eps * largest
        off = (got.double() - expected.double()).abs()
        worst = int(off.argmax())
        if not float(off.flatten()[worst]) <= allowed:
            unit = int(units[worst // off.shape[2] % off.shape[1]])
            raise WrongResult(
                f"{id}: unit {unit} at layer {number} is {got.flatten()[worst].item()}, expected "
                f"{expected.flatten()[worst].item()} as in the whole network"
            )


def _whole_activations(
    split: SplitNetwork, inputs: torch.Tensor, dtype: torch.dtype
) -> list[torch.Tensor]:
    """The activations at each border between layers, rounded as ranks round it."""
    found = [inputs.to(dtype)]
    for layer in split.network.layers:
        sums = _sums(layer, found[-1].double(), torch.from_numpy(layer.weights))
        sums = sums + torch.from_numpy(layer.biases)[:, None]
        found.append(_given(layer, sums).to(dtype))
    return found


def _sums(layer: Layer, taken: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """(samples, neurons, pixels): products of the units that are there with their weights."""
    samples, neurons = taken.shape[0], weights.shape[0]
    if layer.kind == "dense":
        return (taken.reshape(samples, -1) @ weights.reshape(neurons, -1).T)[:, :, None]
    if not taken.shape[1] or not neurons:
        return taken.new_zeros(samples, neurons, layer.side**2)
    maps = taken.reshape(samples, -1, layer.side, layer.side)
    kernels = weights.reshape(neurons, -1, KERNEL, KERNEL)
    return torch.nn.functional.conv2d(maps, kernels, padding=KERNEL // 2).flatten(2)


def _given(layer: Layer, sums: torch.Tensor) -> torch.Tensor:
    """The output of a layer, from its sums with biases."""
    if layer.last:
        return sums
    if layer.kind == "dense":
        return sums.relu()
    samples, neurons = sums.shape[:2]
    maps = sums.relu().reshape(samples, neurons, layer.side, layer.side)
    return torch.nn.functional.max_pool2d(maps, 2).flatten(2)


class _Inference(RankWork):
    def run(self, seat: Seat) -> None:
        workload = seat.plan.workload
        assert isinstance(workload, PartitionedInferenceWorkload)
        split, inputs = read_split(seat.run_directory)
        step = inference_step(workload, split, seat.plan.rank)
        share = InferenceShare(split, seat.plan.rank, inputs, workload.dtype)
        groups: dict[GroupName, Communicator] = {"world": seat.world}
        run_steps(workload, step, groups, seat.compute, seat.log, seat.on_iteration, share)


PART = _Inference()
"""The part of `partitioned_inference`, whose steps send real activations."""
