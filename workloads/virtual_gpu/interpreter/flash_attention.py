"""flash-attention's package by operators of torch: attention, its packed and its varied forms, and
the parts of it that models import beside.

Its attention is torch's, which is one kernel on the device (Dao: FlashAttention-2, ICLR 2024, has
the interface; version 2.8 of the package). Sequences of several lengths are one kernel each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

VERSION = "2.8.3"
"""The version of the package whose interface this is."""
MODULES = (
    "flash_attn",
    "flash_attn.flash_attn_interface",
    "flash_attn.bert_padding",
    "flash_attn.layers",
    "flash_attn.layers.rotary",
    "flash_attn.ops",
    "flash_attn.ops.rms_norm",
    "flash_attn.losses",
    "flash_attn.losses.cross_entropy",
)


class NotFlashAttention(RuntimeError):
    """An option of the package that torch's operators lack."""


def names_of(module: str) -> dict[str, Any]:
    """The names in a module of `MODULES`."""
    attention = {
        each.__name__: each
        for each in (
            flash_attn_func,
            flash_attn_kvpacked_func,
            flash_attn_qkvpacked_func,
            flash_attn_varlen_func,
            flash_attn_varlen_kvpacked_func,
            flash_attn_varlen_qkvpacked_func,
        )
    }
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "flash_attn": lambda: attention | {"__version__": VERSION},
        "flash_attn.flash_attn_interface": lambda: attention,
        "flash_attn.bert_padding": lambda: {
            each.__name__: each for each in (index_first_axis, pad_input, unpad_input)
        },
        "flash_attn.layers.rotary": _rotary,
        "flash_attn.ops.rms_norm": _rms_norm,
        "flash_attn.losses.cross_entropy": _cross_entropy,
    }
    return made.get(module, dict)()


def _attend(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    **others: Any,
) -> Any:
    """Tensors are (batch, length, heads, size); `causal` and `window_size` count from the ends of
    both, as the package has it."""
    torch = sys.modules["torch"]
    given = {
        "softcap": softcap,
        "alibi_slopes": alibi_slopes,
        "return_attn_probs": return_attn_probs,
    }
    for name, value in (given | others).items():
        if value is not None and value is not False and value != 0.0:
            raise NotFlashAttention(f"flash_attn with {name}: not on a virtual GPU")
    rows, columns = q.shape[1], k.shape[1]
    mask = None
    windowed = tuple(window_size) != (-1, -1)
    if windowed or (causal and rows != columns):
        left, right = window_size
        right = 0 if causal else right
        ones = torch.ones(rows, columns, dtype=torch.bool, device=q.device)
        mask = ones if right < 0 else ones.tril(columns - rows + right)
        mask = mask if left < 0 else mask.triu(columns - rows - left)
    result = torch.nn.functional.scaled_dot_product_attention(
        *(each.transpose(1, 2) for each in (q, k, v)),
        attn_mask=mask,
        dropout_p=dropout_p,
        is_causal=causal and mask is None,
        scale=softmax_scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return result.transpose(1, 2)


def flash_attn_func(q: Any, k: Any, v: Any, *args: Any, **options: Any) -> Any:
    return _attend(q, k, v, *args, **options)


def flash_attn_kvpacked_func(q: Any, kv: Any, *args: Any, **options: Any) -> Any:
    return _attend(q, *kv.unbind(2), *args, **options)


def flash_attn_qkvpacked_func(qkv: Any, *args: Any, **options: Any) -> Any:
    return _attend(*qkv.unbind(2), *args, **options)


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *args: Any,
    **options: Any,
) -> Any:
    """Tensors are (all lengths, heads, size); the host reads the lengths."""
    torch = sys.modules["torch"]
    lengths = [each.diff().tolist() for each in (cu_seqlens_q, cu_seqlens_k)]
    if [sum(each) for each in lengths] != [q.shape[0], k.shape[0]]:
        raise NotFlashAttention(
            "flash_attn_varlen_func: cu_seqlens that are not those of its tensors, or have no "
            "contents"
        )
    parts = [q.split(lengths[0]), k.split(lengths[1]), v.split(lengths[1])]
    found = [
        _attend(*(each.unsqueeze(0) for each in one), *args, **options).squeeze(0)
        for one in zip(*parts, strict=True)
    ]
    return torch.cat(found)


def flash_attn_varlen_kvpacked_func(q: Any, kv: Any, *lengths_and_more: Any, **options: Any) -> Any:
    return flash_attn_varlen_func(q, *kv.unbind(1), *lengths_and_more, **options)


def flash_attn_varlen_qkvpacked_func(
    qkv: Any, cu_seqlens: Any, max_seqlen: int, *args: Any, **options: Any
) -> Any:
    both = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    return flash_attn_varlen_func(*qkv.unbind(1), *both, *args, **options)


# -- flash_attn.bert_padding ---------------------------------------------------------------------


def index_first_axis(tensor: Any, indices: Any) -> Any:
    return tensor[indices]


def unpad_input(hidden: Any, attention_mask: Any, unused_mask: Any = None) -> tuple[Any, ...]:
    """The rows that a mask (batch, length) keeps; their places, the sums of lengths, the longest,
    and the lengths."""
    torch = sys.modules["torch"]
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    all_of_it = kept.sum(-1, dtype=torch.int32)
    indices = kept.flatten().nonzero(as_tuple=False).flatten()
    sums = torch.nn.functional.pad(all_of_it.cumsum(0, dtype=torch.int32), (1, 0))
    rows = hidden.flatten(0, 1)[indices]
    used = attention_mask.sum(-1, dtype=torch.int32)
    return rows, indices, sums, int(all_of_it.max()), used


def pad_input(rows: Any, indices: Any, batch: int, length: int) -> Any:
    padded = rows.new_zeros(batch * length, *rows.shape[1:])
    return padded.index_put((indices,), rows).unflatten(0, (batch, length))


# -- flash_attn.layers, ops, losses --------------------------------------------------------------


def _rotary() -> dict[str, Any]:
    torch = sys.modules["torch"]

    def apply_rotary_emb(
        x: Any,
        cos: Any,
        sin: Any,
        interleaved: bool = False,
        inplace: bool = False,
        seqlen_offsets: int = 0,
        cu_seqlens: Any = None,
        max_seqlen: Any = None,
    ) -> Any:
        """x is (batch, length, heads, size), cos and sin (length, half of what turns)."""
        if cu_seqlens is not None or not isinstance(seqlen_offsets, int):
            raise NotFlashAttention(
                "apply_rotary_emb with cu_seqlens or offsets of each sequence: not on a virtual GPU"
            )
        length, turned = x.shape[1], 2 * cos.shape[-1]
        cos, sin = (
            each[seqlen_offsets : seqlen_offsets + length].unsqueeze(-2) for each in (cos, sin)
        )
        own, rest = x[..., :turned], x[..., turned:]
        if interleaved:
            cos, sin = (each.repeat_interleave(2, dim=-1) for each in (cos, sin))
            other = torch.stack((-own[..., 1::2], own[..., ::2]), -1).flatten(-2)
        else:
            cos, sin = (torch.cat((each, each), -1) for each in (cos, sin))
            first, second = own.chunk(2, -1)
            other = torch.cat((-second, first), -1)
        result = torch.cat((own * cos + other * sin, rest), -1).to(x.dtype)
        return x.copy_(result) if inplace else result

    return {"apply_rotary_emb": apply_rotary_emb, "apply_rotary_emb_func": apply_rotary_emb}


def _rms_norm() -> dict[str, Any]:
    torch = sys.modules["torch"]

    def rms_norm(x: Any, weight: Any, epsilon: float) -> Any:
        return torch.nn.functional.rms_norm(x, weight.shape, weight, epsilon)

    class RMSNorm(torch.nn.RMSNorm):  # type: ignore[misc,name-defined]
        def __init__(self, hidden_size: int, eps: float = 1e-5, **places: Any) -> None:
            super().__init__(hidden_size, eps=eps, **places)

    return {"rms_norm": rms_norm, "RMSNorm": RMSNorm}


def _cross_entropy() -> dict[str, Any]:
    torch = sys.modules["torch"]

    class CrossEntropyLoss(torch.nn.CrossEntropyLoss):  # type: ignore[misc,name-defined]
        def __init__(
            self,
            ignore_index: int = -100,
            reduction: str = "mean",
            label_smoothing: float = 0.0,
            **others: Any,
        ) -> None:
            wrong = [name for name, value in others.items() if value and name != "inplace_backward"]
            if wrong:
                raise NotFlashAttention(
                    f"flash_attn's CrossEntropyLoss with {wrong[0]}: not on a virtual GPU"
                )
            super().__init__(
                ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
            )

        def forward(self, logits: Any, labels: Any) -> Any:
            return super().forward(logits.float(), labels)

    return {"CrossEntropyLoss": CrossEntropyLoss}
