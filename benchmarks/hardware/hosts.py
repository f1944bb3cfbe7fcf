"""The time of a host for a layer of a model: DeepSpeed's hooks of ZeRO-3, as measured in public.

deepspeedai/DeepSpeed, pull request 1188: on one p4d.24xlarge (8 A100 40GB) a BERT of 64 layers and
5.1e9 parameters takes 270 ms forward and 670 ms backward with ZeRO-3; the same forward pass takes
60 ms with ZeRO-2 (its issue 1174). Parameters are gathered there one module after the other, which
the host waits for, and that is taken off: 5.1e9 parameters of 16 bits at 229 GB/s of bus bandwidth
(row d35a8.11 of nccl.csv, 8 A100). The rest is the host's, of modules that fetch and release
parameters in each pass, and of gradients that are reduced, tensor after tensor, in the last one.
"""

from __future__ import annotations

from benchmarks.hardware.kernels import Model
from benchmarks.hardware.training_runs import Run

_LAYERS = 64
_MODULES, _TENSORS = 8, 16
"""Modules with parameters, and tensors, of a layer of that BERT: six matrices and two norms, each
with a bias (DeepSpeedExamples bing_bert/nvidia/modelingpreln.py)."""

_FORWARD_S, _BACKWARD_S = 0.270, 0.670
_MOVED_S = 5.1e9 * 2 * 7 / 8 / 229e9
"""Gathering all parameters, or reducing all gradients."""

_FETCH_S = (_FORWARD_S - _MOVED_S) / _LAYERS / _MODULES
"""A module's parameters, fetched and released."""

_REDUCE_S = ((_BACKWARD_S - 2 * _MOVED_S) - (_FORWARD_S - _MOVED_S)) / _LAYERS / _TENSORS
"""A tensor's gradient, put into a bucket and partitioned."""


def host_s(run: Run, model: Model) -> tuple[float, float]:
    """Seconds that a host takes for a layer, forward, and backward with what is recomputed; none
    where no public measurement says."""
    if not run.waits:
        return 0.0, 0.0
    # Norms are modules with a tensor each, and matrices have no biases.
    modules = len(model.matrices) + 2
    fetch_s = modules * _FETCH_S
    passes = 2 if run.recompute == "full" else 1
    return fetch_s, passes * fetch_s + modules * _REDUCE_S
