"""Stand-ins for modules that are compiled for CUDA, by operators of torch that have a time.

apex's norms, softmax and optimizers, and flash-attention's package (flash_attention.py), are found
where the program's Python has none, and DeepSpeed's compiled operators have a version or are
refused by name.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from . import flash_attention

_APEX = (
    "apex",
    "apex.normalization",
    "apex.normalization.fused_layer_norm",
    "apex.contrib",
    "apex.contrib.layer_norm",
    "apex.contrib.layer_norm.layer_norm",
    "apex.optimizers",
)
_SOFTMAX = {
    "scaled_softmax_cuda": "plain",
    "scaled_masked_softmax_cuda": "masked",
    "scaled_upper_triang_masked_softmax_cuda": "causal",
}
_MASKED = -10000.0
"""The score of a place that apex's softmax hides (csrc/megatron/scaled_masked_softmax.h)."""


class NoSuchKernel(RuntimeError):
    """Code that is compiled for CUDA, and has no stand-in."""


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Goes last: what the program's Python has is its own."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        known = (*_APEX, *flash_attention.MODULES)
        if name not in known and name not in _SOFTMAX:
            return None
        package = any(other.startswith(f"{name}.") for other in known)
        return importlib.machinery.ModuleSpec(name, self, is_package=package)

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        if name in _SOFTMAX:
            vars(module).update(_softmax(_SOFTMAX[name]))
        elif name in ("apex.normalization", "apex.normalization.fused_layer_norm"):
            vars(module).update(_norms())
        elif name == "apex.contrib.layer_norm.layer_norm":
            vars(module).update(_fast_norm())
        elif name == "apex.optimizers":
            vars(module).update(_optimizers())
        elif name in flash_attention.MODULES:
            vars(module).update(flash_attention.names_of(name))

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        """Frameworks ask for the version of flash-attention's package before they import it."""
        name = getattr(context, "name", None)
        if name is not None and name.replace("-", "_").lower() == "flash_attn":
            yield _FlashAttention()


class _FlashAttention(importlib.metadata.Distribution):
    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: flash_attn\nVersion: {flash_attention.VERSION}\n"

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(path)


def _norms() -> dict[str, Any]:
    torch = sys.modules["torch"]
    functional = torch.nn.functional

    class Function:
        forward: Callable[..., Any]

        @classmethod
        def apply(cls, *args: Any) -> Any:
            return cls.forward(None, *args)

    class FusedLayerNormAffineFunction(Function):
        @staticmethod
        def forward(
            ctx: Any,
            input: Any,
            weight: Any,
            bias: Any,
            normalized_shape: Any,
            eps: float,
            memory_efficient: bool = False,
        ) -> Any:
            """Frameworks look at its parameters for what apex has."""
            return functional.layer_norm(input, normalized_shape, weight, bias, eps)

    class FusedRMSNormAffineFunction(Function):
        @staticmethod
        def forward(
            ctx: Any,
            input: Any,
            weight: Any,
            normalized_shape: Any,
            eps: float,
            memory_efficient: bool = False,
        ) -> Any:
            return functional.rms_norm(input, normalized_shape, weight, eps)

    class Norm:
        """Before torch's own, which has no `memory_efficient`."""

        def __init__(
            self,
            normalized_shape: Any,
            eps: float = 1e-5,
            elementwise_affine: bool = True,
            memory_efficient: bool = False,
        ) -> None:
            super().__init__(normalized_shape, eps, elementwise_affine)  # type: ignore[call-arg]

    class FusedLayerNorm(Norm, torch.nn.LayerNorm):  # type: ignore[misc,name-defined]
        pass

    class FusedRMSNorm(Norm, torch.nn.RMSNorm):  # type: ignore[misc,name-defined]
        pass

    return {
        "FusedLayerNormAffineFunction": FusedLayerNormAffineFunction,
        "FusedRMSNormAffineFunction": FusedRMSNormAffineFunction,
        "FusedLayerNorm": FusedLayerNorm,
        "MixedFusedLayerNorm": FusedLayerNorm,
        "FusedRMSNorm": FusedRMSNorm,
        "MixedFusedRMSNorm": FusedRMSNorm,
    }


def _fast_norm() -> dict[str, Any]:
    torch = sys.modules["torch"]

    class FastLayerNormFN:
        @staticmethod
        def apply(x: Any, weight: Any, bias: Any, eps: float, *_: Any) -> Any:
            return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)

    return {"FastLayerNormFN": FastLayerNormFN}


def _optimizers() -> dict[str, Any]:
    torch = sys.modules["torch"]

    class FusedAdam(torch.optim.AdamW):  # type: ignore[misc,name-defined]
        """torch's own fused one, which is a kernel for all parameters as well."""

        def __init__(
            self,
            params: Any,
            lr: float = 1e-3,
            bias_correction: bool = True,
            betas: Any = (0.9, 0.999),
            eps: float = 1e-8,
            adam_w_mode: bool = True,
            weight_decay: float = 0.0,
            amsgrad: bool = False,
            **others: Any,
        ) -> None:
            if not (bias_correction and adam_w_mode) or amsgrad:
                raise NoSuchKernel(
                    "apex.optimizers.FusedAdam: a virtual GPU has it with bias_correction and "
                    "adam_w_mode, and without amsgrad"
                )
            super().__init__(params, lr, betas, eps, weight_decay, fused=True)

    class FusedSGD(torch.optim.SGD):  # type: ignore[misc,name-defined]
        def __init__(
            self,
            params: Any,
            lr: float,
            momentum: float = 0.0,
            dampening: float = 0.0,
            weight_decay: float = 0.0,
            nesterov: bool = False,
            **others: Any,
        ) -> None:
            super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, fused=True)

    return {"FusedAdam": FusedAdam, "FusedSGD": FusedSGD}


def _softmax(kind: str) -> dict[str, Callable[..., Any]]:
    torch = sys.modules["torch"]

    def forward(scores: Any, *rest: Any) -> Any:
        scaled = scores * rest[-1]
        if kind == "masked":
            scaled = scaled.masked_fill(rest[0], _MASKED)
        elif kind == "causal":
            length = scores.shape[-1]
            hides = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
            scaled = scaled.masked_fill(hides, _MASKED)
        return torch.softmax(scaled, -1)

    def backward(grads: Any, results: Any, scale: Any) -> Any:
        return torch._softmax_backward_data(grads, results, -1, results.dtype) * scale

    def get_batch_per_block(*_: Any) -> int:
        return 1

    return {"forward": forward, "backward": backward, "get_batch_per_block": get_batch_per_block}


# -- DeepSpeed -----------------------------------------------------------------------------------


def complete_deepspeed(module: Any) -> None:
    """In `deepspeed.ops.op_builder.builder`: operators of CUDA code are not compiled."""
    load = module.OpBuilder.load
    versions = {"fused_adam": _fused_adam, "cpu_adam": _cpu_adam}

    def load_stand_in(builder: Any, verbose: bool = False) -> Any:
        make = versions.get(builder.name)
        if make is not None:
            return make(sys.modules["torch"])
        if isinstance(builder, module.CUDAOpBuilder):
            raise NoSuchKernel(
                f"DeepSpeed's operator {builder.name} is CUDA code, which a virtual GPU has not; "
                f"it has {' and '.join(versions)}"
            )
        return load(builder, verbose)

    module.OpBuilder.load = load_stand_in


def _fused_adam(torch: Any) -> Any:
    def multi_tensor_adam(
        chunk: int,
        overflow: Any,
        lists: Any,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        step: int,
        decoupled: int,
        corrected: int,
        decay: float,
    ) -> None:
        grads, params, firsts, seconds = lists
        if not corrected:
            raise NoSuchKernel("FusedAdam without bias_correction: not on a virtual GPU")
        update = torch._fused_adamw_ if decoupled else torch._fused_adam_
        steps = [torch.full((), float(step), device=each.device) for each in params]
        update(
            params, grads, firsts, seconds, [], steps,
            lr=lr, beta1=beta1, beta2=beta2, weight_decay=decay, eps=eps,
            amsgrad=False, maximize=False,
        )  # fmt: skip

    return types.SimpleNamespace(multi_tensor_adam=multi_tensor_adam)


def _cpu_adam(torch: Any) -> Any:
    kinds: dict[int, bool] = {}

    def create_adam(
        number: int, lr: float, beta1: float, beta2: float, eps: float, decay: float,
        decoupled: bool, tells: bool,
    ) -> None:  # fmt: skip
        kinds[number] = decoupled

    def adam_update(
        number: int, step: int, lr: float, beta1: float, beta2: float, eps: float, decay: float,
        corrected: bool, params: Any, grads: Any, first: Any, second: Any,
    ) -> None:  # fmt: skip
        if not corrected:
            raise NoSuchKernel("CPUAdam without bias_correction: not on a virtual GPU")
        update = torch._fused_adamw_ if kinds[number] else torch._fused_adam_
        update(
            [params], [grads.to(params.dtype)], [first], [second], [], [torch.tensor(float(step))],
            lr=lr, beta1=beta1, beta2=beta2, weight_decay=decay, eps=eps,
            amsgrad=False, maximize=False,
        )  # fmt: skip

    return types.SimpleNamespace(
        create_adam=create_adam, adam_update=adam_update, destroy_adam=lambda number: None
    )
