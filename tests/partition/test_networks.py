"""Networks that are trained here, their refitting, and what a split leaves of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.partition.small_networks import convolutional, workload
from topologies.spec.partition.section import CnnNetwork, MlpNetwork
from workloads.models.partition.digits import Images, drawn
from workloads.models.partition.made import made_network
from workloads.models.partition.network import Floats, Network, accuracy, activations
from workloads.models.partition.refit import refitted
from workloads.models.partition.split import SplitNetwork
from workloads.models.partition.split_file import NETWORK_FILE, read_split, split_text
from workloads.models.partition.splitting import batch_of, figures_of, split_of
from workloads.models.partition.training import Training


def loss(network: Network, images: Images) -> float:
    outputs = activations(network, images.pixels)[-1][:, :, 0]
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-logs[np.arange(len(outputs)), images.labels].mean())


def _nudged(network: Network, number: int, part: int, place: tuple[int, ...], by: float) -> Network:
    """With one weight (part 0) or bias (part 1) of a layer moved."""
    layers = list(network.layers)
    layer = layers[number]
    values: Floats = (layer.weights, layer.biases)[part].copy()
    values[place] += by
    layers[number] = replace(layer, biases=values) if part else replace(layer, weights=values)
    return replace(network, layers=tuple(layers))


def test_gradients_are_those_of_the_loss() -> None:
    """Central differences: their error is of the order of the step's square."""
    network = convolutional()
    random = np.random.default_rng(1)
    images = Images(random.normal(0, 1, (5, 2 * 64)), random.integers(0, 3, 5))
    gradients = Training(network).gradients(images.pixels, images.labels)
    step = 1e-6
    for number, layer in enumerate(network.layers):
        for part, values in enumerate((layer.weights, layer.biases)):
            for _ in range(6):
                place = tuple(random.integers(0, size) for size in values.shape)

                def moved(by: float) -> float:
                    return loss(_nudged(network, number, part, place, by), images)  # noqa: B023

                slope = (moved(step) - moved(-step)) / (2 * step)
                assert gradients[2 * number + part][place] == pytest.approx(slope, abs=1e-6)


def test_training_tells_digits_that_it_has_not_seen() -> None:
    made = made_network(MlpNetwork(kind="mlp"))
    assert accuracy(made.network, made.tests, made.labels) > 0.9
    chance = np.bincount(made.labels).max() / len(made.labels)
    assert chance < 0.15


def test_training_is_the_same_each_time() -> None:
    spec = MlpNetwork(kind="mlp", hidden=(16,), seed=7)
    first = made_network(spec)
    made_network.cache_clear()
    again = made_network(spec)
    for one, other in zip(first.network.layers, again.network.layers, strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
    other_seed = made_network(MlpNetwork(kind="mlp", hidden=(16,), seed=8))
    assert not np.array_equal(first.network.layers[0].weights, other_seed.network.layers[0].weights)


def test_a_cnn_is_laid_out_as_its_spec_says_and_learns() -> None:
    made = made_network(CnnNetwork(kind="cnn", channels=(8, 16), hidden=(32,)))
    shapes = [layer.weights.shape for layer in made.network.layers]
    assert shapes == [(8, 1, 9), (16, 8, 9), (32, 16, 3 * 3), (10, 32, 1)]
    assert [layer.side for layer in made.network.layers] == [12, 6, 1, 1]
    assert accuracy(made.network, made.tests, made.labels) > 0.9


def test_refitting_all_weights_changes_nothing() -> None:
    network = convolutional()
    typical = np.random.default_rng(2).normal(0, 1, (50, 2 * 64))
    masks = tuple(np.ones(layer.weights.shape[:2], dtype=bool) for layer in network.layers)
    again = refitted(network, masks, typical)
    for layer, other in zip(network.layers, again.layers, strict=True):
        np.testing.assert_allclose(other.weights, layer.weights, atol=2e-3)


def test_refitting_comes_nearer_than_pruning_alone() -> None:
    network = convolutional()
    random = np.random.default_rng(3)
    typical, others = random.normal(0, 1, (2, 200, 2 * 64))
    masks = tuple(random.random(layer.weights.shape[:2]) < 0.6 for layer in network.layers)
    right = activations(network, others)[-1]
    errors = [
        float(((activations(found, others)[-1] - right) ** 2).mean())
        for found in (network.with_weights(masks), refitted(network, masks, typical))
    ]
    assert errors[1] < 0.8 * errors[0]
    for layer, mask in zip(refitted(network, masks, typical).layers, masks, strict=True):
        assert not layer.weights[~mask].any()


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("prune", ["activations", "weights"])
def test_hidden_blocks_are_recovered_and_nothing_crosses(ranks: int, prune: str) -> None:
    found = workload(ranks, partition={"crossing_cost": 0.1, "prune": prune})
    figures = figures_of(found)
    assert figures.crossing_elements == 0
    assert figures.accuracy == figures.unsplit_accuracy == 1.0
    split = split_of(found)
    sizes = [np.bincount(place).tolist() for place in split.places]
    assert sizes == [[8] * ranks] * len(sizes)
    cut = figures_of(workload(ranks, partition={"assignment": "contiguous"}))
    assert cut.crossing_elements > 0.5 * cut.most_crossing_elements


def test_bytes_across_fall_on_a_trained_network() -> None:
    """At this cost less than a third is left, and an assignment in order leaves more of it."""
    network = {"kind": "mlp"}
    figures = {
        (cost, how): figures_of(
            workload(4, network=network, partition={"crossing_cost": cost, "assignment": how})
        )
        for cost in (0.0, 1.0)
        for how in ("munkres", "contiguous")
    }
    everything, pruned = figures[0.0, "munkres"], figures[1.0, "munkres"]
    assert everything.accuracy == everything.unsplit_accuracy
    assert pruned.crossing_elements < everything.crossing_elements / 3
    assert pruned.accuracy > everything.accuracy - 0.02
    assert pruned.crossing_elements < figures[1.0, "contiguous"].crossing_elements
    assert pruned.cost < figures[1.0, "contiguous"].cost


def test_a_rank_reads_what_was_written(tmp_path: Path) -> None:
    found = workload(4, network={"kind": "mlp", "hidden": (16,)}, partition={"crossing_cost": 0.5})
    split, inputs = split_of(found), batch_of(found)
    path = tmp_path / NETWORK_FILE
    path.parent.mkdir()
    path.write_text(split_text(split, inputs))
    read, read_inputs = read_split(tmp_path)
    np.testing.assert_array_equal(read_inputs, inputs)
    _same(read, split)


def _same(read: SplitNetwork, split: SplitNetwork) -> None:
    assert read.workers == split.workers
    for one, other in zip(read.network.layers, split.network.layers, strict=True):
        assert (one.kind, one.side, one.last) == (other.kind, other.side, other.last)
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.biases, other.biases)
    for mine, theirs in ((read.places, split.places), (read.masks, split.masks)):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_digits_are_drawn_again_from_the_same_seed() -> None:
    first, again = (drawn(20, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first.pixels, again.pixels)
    assert set(first.labels.tolist()) <= set(range(10))
