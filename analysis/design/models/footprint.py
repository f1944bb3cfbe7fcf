"""The memory of a host that training needs."""

from __future__ import annotations

OPTIMIZER_BYTES = 12
"""K of the ZeRO paper: Adam's two moments and the parameter itself, in 32 bit."""
UPDATE_BYTES = 2 * OPTIMIZER_BYTES + 4
"""The bytes of an update: optimizer states read and written, the gradient read, the parameter
written."""


def state_bytes_per_parameter(stage: int, data: int) -> float:
    """Bytes of model states for each parameter: 2 of parameters, 2 of gradients and K of optimizer
    states, of which stage 1 spreads the last, stage 2 gradients, too, and stage 3 all over the
    `data` ranks. Source: Rajbhandari, Rasley, Ruwase and He, "ZeRO", SC 2020 (arXiv 1910.02054),
    section 3."""
    parameters, gradients, states = 2.0, 2.0, float(OPTIMIZER_BYTES)
    if stage >= 1:
        states /= data
    if stage >= 2:
        gradients /= data
    if stage >= 3:
        parameters /= data
    return parameters + gradients + states


def layer_activation_bytes(
    samples: float, sequence: int, hidden: int, heads: int, tensor: int
) -> float:
    """The bytes that a transformer's layer keeps of a microbatch for its backward pass, in 16 bit:
    sbh(10 + 24/t + 5as/(ht)). Source: Korthikanti et al., "Reducing activation recomputation in
    large transformer models", MLSys 2023 (arXiv 2205.05198), equation 2."""
    tokens = samples * sequence
    return tokens * hidden * (10 + 24 / tensor + 5 * heads * sequence / (hidden * tensor))
