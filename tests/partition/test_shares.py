"""The result that the ranks' shares compute together, without a kernel: messages are handed
over."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.partition.small_networks import convolutional, workload
from topologies.spec.partition.section import PartitionedInferenceWorkload
from topologies.spec.workload_types import Dtype
from workloads.execution.inference import InferenceShare
from workloads.execution.payload.numbers import WrongResult
from workloads.models.partition.network import Floats, activations
from workloads.models.partition.split import SplitNetwork
from workloads.models.partition.splitting import batch_of, split_of
from workloads.models.partition.step import inference_step
from workloads.models.step import Action, ComputeKernel, StartMessage, WaitFor


def infer(
    found: PartitionedInferenceWorkload, split: SplitNetwork, inputs: Floats, spoil: bool = False
) -> int:
    """All ranks to their ends; how many elements crossed. `spoil` changes one on its way."""
    ranks = range(split.workers)
    shares = [InferenceShare(split, rank, inputs, found.dtype) for rank in ranks]
    steps: list[list[Action]] = [list(inference_step(found, split, rank)) for rank in ranks]
    sent: dict[str, torch.Tensor] = {}
    posted: dict[tuple[int, str], tuple[StartMessage, torch.Tensor]] = {}
    crossed = 0
    for share in shares:
        share.begin()
    while any(steps):
        moved = False
        for rank in ranks:
            while steps[rank]:
                action = steps[rank][0]
                match action:
                    case StartMessage():
                        buffer = shares[rank].buffer(action)
                        assert buffer.numel() == action.elements
                        posted[rank, action.name] = action, buffer
                        if action.source == rank:
                            sent[action.name] = buffer.clone()
                            crossed += buffer.numel()
                            if spoil:
                                sent[action.name].flatten()[0] += 1.0
                    case WaitFor(name):
                        message, buffer = posted[rank, name]
                        if message.destination == rank:
                            if name not in sent:
                                break
                            buffer.copy_(sent.pop(name))
                            shares[rank].check(message, name)
                    case ComputeKernel():
                        shares[rank].work(action)
                    case _:
                        raise AssertionError(action)
                steps[rank].pop(0)
                moved = True
        assert moved, "ranks wait for each other"
    for share in shares:
        share.end("i0")
    assert not sent
    return crossed


@pytest.mark.parametrize("network", ["mlp", "cnn", "block-diagonal"])
@pytest.mark.parametrize("cost", [0.0, 0.7])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_split_network_gives_what_the_whole_one_gives(
    network: str, cost: float, dtype: Dtype
) -> None:
    specs = {
        "mlp": {"kind": "mlp", "hidden": (24, 16)},
        "cnn": {"kind": "cnn", "channels": (4, 6), "hidden": (8,)},
        "block-diagonal": {"kind": "block-diagonal", "blocks": 3, "width": 24},
    }
    for overlap in (False, True):
        found = workload(
            3,
            network=specs[network],
            partition={"crossing_cost": cost},
            dtype=dtype,
            overlap=overlap,
        )
        split = split_of(found)
        crossed = infer(found, split, batch_of(found))
        assert crossed == split.crossing_elements * found.batch_size


@given(st.data())
@settings(max_examples=12, deadline=None)
def test_any_assignment_and_any_pruning_is_carried_out(data: st.DataObject) -> None:
    """Even with workers that have no neurons of a layer."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    workers = data.draw(st.integers(2, 4))
    whole = convolutional(data.draw(st.integers(0, 100)))
    masks = tuple(random.random(layer.weights.shape[:2]) < 0.7 for layer in whole.layers)
    pruned = whole.with_weights(masks)
    first = whole.layers[0].units_in
    places = (
        random.integers(-1, workers, first),
        *(random.integers(0, workers, layer.units_out) for layer in whole.layers),
    )
    split = SplitNetwork(pruned, workers, places, masks)
    found = workload(workers, batch_size=3)
    inputs = random.normal(0, 1, (3, 2 * 64))
    assert infer(found, split, inputs) == 3 * split.crossing_elements


def test_a_wrong_number_on_its_way_is_found() -> None:
    found = workload(3, network={"kind": "mlp", "hidden": (24, 16)})
    with pytest.raises(WrongResult, match="as in the whole network"):
        infer(found, split_of(found), batch_of(found), spoil=True)


def test_a_share_that_computes_something_else_is_found() -> None:
    found = workload(2, network={"kind": "block-diagonal", "blocks": 2, "width": 8})
    split = split_of(found)
    share = InferenceShare(split, 0, batch_of(found), found.dtype)
    share.begin()
    with pytest.raises(WrongResult, match=r"i0\.outputs"):
        share.end("i0")


def test_ranks_reference_is_the_networks_own() -> None:
    """torch's products against numpy's."""
    network = convolutional()
    inputs = np.random.default_rng(4).normal(0, 1, (3, 2 * 64))
    masks = tuple(np.ones(layer.weights.shape[:2], dtype=bool) for layer in network.layers)
    places = (np.zeros(2, dtype=np.int64), *(np.zeros(n, dtype=np.int64) for n in (4, 6, 5, 3)))
    share = InferenceShare(SplitNetwork(network, 1, places, masks), 0, inputs, "float32")
    for one, other in zip(share.whole, activations(network, inputs), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)
