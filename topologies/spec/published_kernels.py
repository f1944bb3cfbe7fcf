"""The shares of an accelerator's peaks that kernels reach, by class and size, as published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

Steps = tuple[tuple[float, float], ...]
"""(size from which on, share of the peak), from the largest size on; the last size is 0."""


@dataclass(frozen=True, slots=True)
class Shares:
    """`matrix`: of the peak of arithmetic, by a kernel's FLOP. `attention` and
    `attention_backward`: the same of fused attention, by the sequence's length. `memory`: of
    memory bandwidth, by the bytes that a kernel moves."""

    matrix: Steps
    attention: Steps
    attention_backward: Steps
    memory: Steps

    def plan(self) -> dict[str, Steps]:
        """By name, as observers and virtual GPUs take them."""
        found: dict[str, Steps] = asdict(self)
        return found


def share(steps: Steps, size: float) -> float:
    """The share at a size."""
    return next(reached for least, reached in steps if size >= least)


PUBLISHED: Mapping[str, Shares] = {
    # Matrix products and memory: Calculon (SC 2023, calculon-ai/calculon systems/a100_80g.json).
    # Attention: FlashAttention 2 reaches 50 to 73% of the peak (arXiv 2307.08691, abstract); the
    # middle, as no table by length was found.
    "a100": Shares(
        matrix=((128e9, 0.95), (16e9, 0.9), (1e9, 0.6), (0, 0.1)),
        attention=((0, 0.615),),
        attention_backward=((0, 0.615),),
        memory=((100e6, 0.9), (10e6, 0.75), (1e6, 0.6), (0, 0.3)),
    ),
    # Large matrix products and memory: 0.78 and 0.92 (pytorch/ao
    # torchao/testing/training/roofline_utils.py, measured); smaller ones in the proportions of
    # Calculon's table, which is the same for A100 and H100. Attention: FlashAttention 2, head
    # dimension 128, forward with a causal mask, backward without (FlashAttention 3, arXiv
    # 2407.08608, figures 5 and 6): 191 to 335 and 214 to 322 of 989 TFLOPS.
    "h100": Shares(
        matrix=((128e9, 0.78), (16e9, 0.739), (1e9, 0.493), (0, 0.082)),
        attention=(
            (16384, 0.339),
            (8192, 0.337),
            (4096, 0.323),
            (2048, 0.301),
            (1024, 0.263),
            (0, 0.193),
        ),
        attention_backward=(
            (16384, 0.326),
            (8192, 0.322),
            (4096, 0.313),
            (2048, 0.294),
            (1024, 0.263),
            (0, 0.216),
        ),
        memory=((100e6, 0.92), (10e6, 0.767), (1e6, 0.613), (0, 0.307)),
    ),
}
"""By device. A length between two of those published takes the share of the shorter one."""
