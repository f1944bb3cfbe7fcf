"""Phases of communication: their names as papers write them, and their order."""

from __future__ import annotations

from collectives.kinds import TABLE

_NAMES = {kind.value: traits.label for kind, traits in TABLE.items()} | {
    "embedding_forward": "forward AlltoAll",
    "embedding_backward": "backward AlltoAll",
    "mlp_gradient": "MLP AllReduce",
    "tensor_forward": "tensor-parallel AllReduce, forward",
    "tensor_backward": "tensor-parallel AllReduce, backward",
    "pipeline_forward": "pipeline send/recv, forward",
    "pipeline_backward": "pipeline send/recv, backward",
    "gradient": "data-parallel AllReduce",
}


def phase_name(phase: str) -> str:
    """The name of a phase for people; the seed experiment's figures use the first three."""
    return _NAMES.get(phase, phase.replace("_", " "))
