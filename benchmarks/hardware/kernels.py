"""A model of the kernels of a training step: operations and bytes, counted, and the shares of the
peaks that were published for their class and size (`compute: {kernels: published}`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.hardware.training_runs import Run
from topologies.spec.published_kernels import PUBLISHED, Shares, share


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer. `gated` networks have three matrices of `hidden` x `inner`, others two."""

    layers: int
    hidden: int
    key_value: int
    inner: int
    vocabulary: int
    gated: bool

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """A layer's matrices, as (rows, columns): of queries, keys, values, attention's output, and
        of its network."""
        hidden, inner = self.hidden, self.inner
        attention = (hidden, hidden), (hidden, self.key_value), (hidden, self.key_value)
        network = ((hidden, inner),) * (2 if self.gated else 1)
        return (*attention, (hidden, hidden), *network, (inner, hidden))

    @property
    def layer_parameters(self) -> int:
        """The parameters of a layer's matrices."""
        return sum(rows * columns for rows, columns in self.matrices)

    @property
    def parameters(self) -> int:
        """All parameters of matrices, and of the embedding and the head."""
        return self.layers * self.layer_parameters + 2 * self.vocabulary * self.hidden


MODELS: Mapping[str, Model] = {
    # Llama 3.1 8B, 70B and 405B (arXiv 2407.21783, table 3), Qwen3-8B (arXiv 2505.09388, table 1),
    # MPT (llm-foundry's yaml files), BERT large (arXiv 1810.04805).
    "llama3-8b": Model(32, 4096, 1024, 14336, 128256, True),
    "llama3-70b": Model(80, 8192, 1024, 28672, 128256, True),
    "llama3-405b": Model(126, 16384, 1024, 53248, 128256, True),
    "qwen3-8b": Model(36, 4096, 1024, 12288, 151936, True),
    "mpt-7b": Model(32, 4096, 4096, 16384, 50368, False),
    "mpt-13b": Model(40, 5120, 5120, 20480, 50368, False),
    "mpt-30b": Model(48, 7168, 7168, 28672, 50368, False),
    "bert-large": Model(24, 1024, 1024, 4096, 30528, False),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peaks, by how much float8 is faster in products, whose shares of the peaks it reaches
    (`published_kernels`), and which servers it is in."""

    flops: float
    memory_bytes_per_s: float
    float8: float
    shares: Shares
    server: str


_AMPERE, _HOPPER = PUBLISHED["a100"], PUBLISHED["h100"]

GPUS: Mapping[str, Gpu] = {
    # Peaks: NVIDIA's data sheets; of the HBM2e variant what torchtitan's page says. float8: the
    # best products of stas00/ml-engineering compute/accelerator/README.md, in TFLOPS: 1402.6 on
    # H100, 1453.4 on H200, 794.5 in 16 bits on both. Kernels of an H200 are those of an H100.
    "h100": Gpu(989e12, 3.35e12, 1402.6 / 794.5, _HOPPER, "dgx-h100"),
    "h100-hbm2e": Gpu(989e12, 2.4e12, 1402.6 / 794.5, _HOPPER, "dgx-h100"),
    "h200": Gpu(989e12, 4.8e12, 1453.4 / 794.5, _HOPPER, "dgx-h200"),
    "a100": Gpu(312e12, 2.039e12, 1, _AMPERE, "dgx-a100"),
    "a100-40gb": Gpu(312e12, 1.555e12, 1, _AMPERE, "dgx-a100"),
}


@dataclass(frozen=True, slots=True)
class Kernels:
    """Seconds that a GPU computes for a microbatch: of a layer, forward and backward with what is
    recomputed; of embedding, head and loss; and of a step's optimizer."""

    forward_s: float
    backward_s: float
    head_s: float
    optimizer_s: float


def kernels(run: Run, slower: float) -> Kernels:
    """The computing of a GPU whose tensor cores take so many times longer than published."""
    model, gpu = MODELS[run.model], GPUS[run.gpu]
    tokens, split = run.tokens, run.tensor
    float8 = run.technique == "float8"
    memory = _memory(run)
    products_s = sum(
        _product_s(gpu, tokens * rows * columns / split) for rows, columns in model.matrices
    ) * (slower / gpu.float8 if float8 else slower)
    # Causal attention does half of 4 x sequence x hidden; BERT's is not causal, and is a product of
    # each head, here by its size for all.
    flops = (4 if run.bert else 2) * run.length * model.hidden * tokens / split
    if run.bert:
        attention_s = 2 * _product_s(gpu, flops / 4) * slower
        attention_backward_s = 2 * attention_s
    else:
        # FlashAttention's backward pass does 2.5 times the forward's operations (arXiv 2307.08691).
        attention_s = slower * flops / gpu.flops / share(gpu.shares.attention, run.length)
        reached = share(gpu.shares.attention_backward, run.length)
        attention_backward_s = slower * 2.5 * flops / gpu.flops / reached
    # With sequence parallelism tensor-parallel peers have a part of the tokens each, and cast to
    # float8 what they have before it is gathered.
    other_s = _elementwise_bytes(run, model) * tokens / split / memory
    parameters = model.layer_parameters / split
    forward, backward = 0.0, 2 * other_s
    if run.mixed:
        # Autocast casts a weight, and its gradient back; FSDP casts that for its reduction.
        forward += 6 * parameters / memory
        backward += 12 * parameters / memory
    casts_s = (0.0, 0.0, 0.0)
    if float8:
        inputs, gradients = 3 * model.hidden + model.inner, sum(out for _, out in model.matrices)
        # torchao testing/training/roofline_utils.py, get_tensor_memory_traffic_ovhd_s: the largest
        # is read off, then a cast writes rows and columns. Weights are cast for each direction.
        casts_s = (
            (6 * inputs * tokens / split + 5 * parameters) / memory,
            (6 * gradients * tokens / split + 3 * parameters) / memory,
            (4 * inputs * tokens / split + 3 * parameters) / memory,
        )
    ring, ring_backward = _ring_bytes(run)
    each_s = tokens * model.hidden / memory
    forward += products_s + attention_s + other_s + casts_s[0] + ring * each_s
    backward += 2 * products_s + attention_backward_s + casts_s[1] + ring_backward * each_s
    # torchtitan's selective policy (parallelisms/parallelize_llama.py, _save_list) saves attention,
    # the largest of a tensor, and every second product in 16 bits; those in float8 it has not.
    backward += {
        "none": 0.0,
        "selective": products_s * (1.0 if float8 else 0.5) + other_s + casts_s[2],
        "full": forward,
    }[run.recompute]
    head_s = 3 * slower * _product_s(gpu, tokens * model.vocabulary * model.hidden / split)
    # Logits in 16 bits, then in 32 for the loss: 28 bytes of each there and back, 10 if fused.
    logit_bytes = (28 if run.technique == "eager" or run.bert else 10) * model.vocabulary
    head_s += logit_bytes * tokens / split / memory
    shards = 1 if run.bert else run.gpus
    return Kernels(
        forward, backward, head_s, _optimizer_bytes(run) * model.parameters / shards / memory
    )


def _product_s(gpu: Gpu, multiplications: float) -> float:
    """Seconds of a matrix product, by the published share of its size."""
    flops = 2 * multiplications
    return flops / gpu.flops / share(gpu.shares.matrix, flops)


def _memory(run: Run) -> float:
    """Bytes a second that kernels move which read and write a number of 16 bits for each of a
    token's `hidden`."""
    gpu = GPUS[run.gpu]
    moved = 4 * run.tokens * MODELS[run.model].hidden
    return gpu.memory_bytes_per_s * share(gpu.shares.memory, moved)


def _ring_bytes(run: Run) -> tuple[float, float]:
    """Memory that context parallelism moves beside attention, forward and backward, for each number
    of a GPU's queries, counted by operation in torch (_context_parallel/_attention.py,
    `_templated_ring_attention` and its backward, `_SDPAMerger`, `_partial_update`). Keys and values
    were repeated for all heads before, so that they are as many.

    Attention goes in as many steps as a sequence has GPUs. In a step after the first a GPU has half
    of its keys, or half of its queries: in the mean over GPUs each as often.
    """
    steps = run.context
    if steps == 1:
        return 0.0, 0.0
    # Results in 32 bits (6 bytes), then their difference, its product and the sum (12, 8, 12); of
    # half of them, whose halves are joined (8). Keys and values are joined to be sent (8).
    whole = 6 + 12 + 8 + 12
    merged = (whole + (whole / 2 + 8)) / 2
    forward = steps * 8 + 6 + (steps - 1) * merged + 6
    # Gradients are of 32 bits: zeros (4 each), sums (10 each; of half of them 5, then joined, 8),
    # those of keys and values are joined to be sent (16), the last ones are cast (6 each).
    with_half_of_keys = 2 * (5 + 8) + 10
    with_half_of_queries = 2 * 10 + (5 + 8)
    added = (with_half_of_keys + with_half_of_queries) / 2
    backward = 3 * 4 + steps * (8 + 16) + 3 * 10 + (steps - 1) * added + 3 * 6
    return forward, backward


def _optimizer_bytes(run: Run) -> int:
    """Memory that a step of the optimizer moves, a parameter."""
    if run.bert:
        # Fused: weight, gradient and two moments are read and three of them written, 4 bytes each.
        return 28
    # Adam a line at a time, fused in none of the sources (torch/optim/adamw.py, and the same in
    # composer/optim/decoupled_weight_decay.py, adamw): moments are scaled (16 bytes) and added to
    # (24), the second's root is taken, divided and added to (24), and weights are changed (16);
    # clipping reads gradients for their norm and scales them (12).
    whole = 16 + 24 + 24 + 16 + 12
    return whole // 2 if "PURE" in run.measured_on else whole


def _elementwise_bytes(run: Run, model: Model) -> float:
    """Memory that a layer's forward pass moves beside its products, a token, counted by operation:
    norms, residuals, rotary embeddings, repeated keys and values, activations."""
    hidden, inner = model.hidden, model.inner
    if run.bert:
        # Two norms, two residuals, two dropouts, GELU; scores and their softmax and dropout are
        # written: 16 heads.
        return 36 * hidden + 4 * inner + 16 * 10 * run.length
    if not model.gated:
        return 20 * hidden + 4 * inner
    return 117 * hidden + 10 * inner if run.technique == "eager" else 29 * hidden + 6 * inner
