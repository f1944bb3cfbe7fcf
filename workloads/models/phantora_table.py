"""Phantora's database of kernels' times, read and written: a folder with `compute.csv`, in which a
row is a call and its nanoseconds.

    key,nanos
    "{""MM"":[[""bf16"",[4096,4096]],[""bf16"",[4096,1024]]]}",61200

A call is one of Phantora's names with its tensors, `[type, shape]` each, or `{"shape", "dtype"}` in
files of its first version, which have the name in a column `op` of their own;
`{"R": [times, list]}` is a list that repeats. Phantora records calls as Python makes them; a kernel
here is what torch's dispatcher makes of a call: `Linear` is `aten::mm` or `aten::addmm`, a change
of type `aten::copy_`.
`memcpy.csv` (copies take `compute.host_link`), `flash_attn.csv` (of a package that is absent) and
`sequence.csv` (of hashes) are not read.

Source: QDelta/Phantora, phantora/phantora/src/perf_db.rs and torch_call.rs, tests/perfdb/bench.py.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from workloads.models.operation_times import OperationTimes, OperationTimesError, Shapes

COMPUTE_FILE = "compute.csv"
_HEADS = (["key", "nanos"], ["op", "key", "nanos"])
_MANIFEST_FILE = "manifest.md"
# Type codes of its compact form, its names of types (tch's), and torch's.
_TYPES = (
    ("f32", "Float", "Float"),
    ("f64", "Double", "Double"),
    ("f16", "Half", "Half"),
    ("bf16", "BFloat16", "BFloat16"),
    ("b8", "Bool", "Bool"),
    ("i32", "Int", "Int"),
    ("i64", "Int64", "Long"),
    ("i16", "Int16", "Short"),
    ("i8", "Int8", "Char"),
    ("u8", "Uint8", "Byte"),
)
_TORCH_TYPE = {theirs: ours for code, name, ours in _TYPES for theirs in (code, name)}
_CODE = {ours: code for code, _, ours in _TYPES}
_HALF = ("Half", "BFloat16")
_FLASH, _EFFICIENT = "flash", "efficient"
_LSE_MULTIPLE = 32
"""The efficient kernel's sums of exponentials are padded to it (torch, attention.cu)."""

# Calls whose tensors are those of one operator, in its order.
_PLAIN = {
    "MM": "mm", "BMM": "bmm", "AddMM": "addmm", "BAddBMM": "baddbmm", "Mul": "mul",
    "MulScalar": "mul", "Mul_": "mul_", "MulScalar_": "mul_", "ForeachMul_": "_foreach_mul_",
    "ForeachMulScalar_": "_foreach_mul_", "Add": "add", "Add_": "add_", "Div": "div",
    "DivScalar": "div", "Pow": "pow", "AddCMul_": "addcmul_", "AddCDiv_": "addcdiv_",
    "ForeachAddCMul_": "_foreach_addcmul_", "ForeachAddCDiv_": "_foreach_addcdiv_",
    "MaskedFill": "masked_fill_", "MaskedFill_": "masked_fill_", "Dropout": "native_dropout",
    "NativeDropout": "native_dropout", "NativeDropoutBackward": "native_dropout_backward",
    "FusedDropout": "_fused_dropout", "Where": "where", "WhereScalar": "where", "Gelu": "gelu",
    "GeluBackward": "gelu_backward", "Sum": "sum", "Sqrt": "sqrt", "Softmax": "_softmax",
    "SoftmaxBackward": "_softmax_backward_data", "ZerosLike": "zero_",
}  # fmt: skip
_LISTS = frozenset(("ForeachMul_", "ForeachMulScalar_", "ForeachAddCMul_", "ForeachAddCDiv_"))


@dataclass(frozen=True, slots=True)
class _Tensor:
    shape: tuple[int, ...]
    type: str


_Kernel = tuple[str, list[_Tensor]]


def is_phantora(path: Path) -> bool:
    """Whether a path is such a folder, or its `compute.csv`."""
    return path.name == COMPUTE_FILE or (path / COMPUTE_FILE).is_file()


def read_phantora(path: Path) -> OperationTimes:
    """The times in a folder, or in its `compute.csv`. Calls of which no operator is known here are
    left out. Raises OperationTimesError, which names the line."""
    file = path if path.name == COMPUTE_FILE else path / COMPUTE_FILE
    typed: dict[tuple[str, Shapes, str], int] = {}
    derived: dict[tuple[str, Shapes, str], int] = {}
    for number, call, payload, time_ns in _rows(file):
        try:
            kernel = _kernel(call, payload)
        except (KeyError, IndexError, TypeError, ValueError):
            raise OperationTimesError(
                f"{file}: line {number}: key: found {call} with {json.dumps(payload)[:80]}; "
                "expected a call with its tensors, as Phantora writes it"
            ) from None
        if kernel is None or time_ns == 0:  # a change of type that changes nothing takes none
            continue
        name, tensors = kernel
        kept = [each for each in tensors if each.shape]
        shapes = tuple(each.shape for each in kept)
        key = (f"aten::{name}", shapes, ";".join(each.type for each in kept))
        (typed if call in _PLAIN else derived)[key] = time_ns
    return OperationTimes({}, of_device=True, typed=derived | typed)


def _rows(file: Path) -> Iterator[tuple[int, str, Any, int]]:
    try:
        with open(file, newline="", encoding="utf-8") as opened:
            rows = list(csv.reader(opened))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise OperationTimesError(f"{file}: {said}, expected Phantora's table (CSV)") from error
    if not rows or rows[0] not in _HEADS:
        found = ",".join(rows[0]) if rows else "nothing"
        raise OperationTimesError(f"{file}: line 1: found {found[:80]}; expected key,nanos")
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(rows[0]) or not row[-1].isdecimal():
            found = ",".join(row)
            raise OperationTimesError(
                f"{file}: line {number}: found {found[-80:]}; expected a key and nanoseconds"
            )
        try:
            ((call, payload),) = json.loads(row[-2]).items()
            payload = _expanded(payload)
        except (AttributeError, ValueError, TypeError, RecursionError):
            raise OperationTimesError(
                f"{file}: line {number}: key: found {row[-2][:80]}; expected JSON of one call"
            ) from None
        yield number, call, payload, int(row[-1])


def _expanded(value: Any) -> Any:
    """With lists that repeat written out."""
    if isinstance(value, dict):
        if value.keys() == {"R"}:
            times, period = value["R"]
            if not isinstance(times, int) or not 0 < times * len(period) <= 1 << 20:
                raise ValueError(value)
            return [_expanded(each) for each in period] * times
        return {key: _expanded(each) for key, each in value.items()}
    return [_expanded(each) for each in value] if isinstance(value, list) else value


def _tensor(value: Any) -> _Tensor:
    kind, shape = (value["dtype"], value["shape"]) if isinstance(value, dict) else value
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(shape)
    return _Tensor(tuple(shape), _TORCH_TYPE[kind])


def _kernel(call: str, payload: Any) -> _Kernel | None:
    """The operator that a call comes to, and its tensors; None where none is known."""
    if call in _LISTS:
        nested = payload if call != "ForeachMulScalar_" else [payload]
        return _PLAIN[call], [_tensor(each) for part in nested for each in part]
    if call in _PLAIN:
        alone = isinstance(payload, dict) or isinstance(payload[0], str)
        given = [payload] if alone else [each for each in payload if isinstance(each, dict | list)]
        return _PLAIN[call], [_tensor(each) for each in given]
    special = _SPECIAL.get(call)
    return None if special is None else special(payload)


def _linear(payload: Any) -> _Kernel:
    x, weight = _tensor(payload[0]), _tensor(payload[1])
    rows = _Tensor((prod(x.shape[:-1]), x.shape[-1]), x.type)
    turned = _Tensor(weight.shape[::-1], weight.type)
    if payload[2] is None:
        return "mm", [rows, turned]
    return "addmm", [_tensor(payload[2]), rows, turned]


def _matmul(payload: Any) -> _Kernel | None:
    a, b = _tensor(payload[0]), _tensor(payload[1])
    if len(a.shape) >= 2 and len(b.shape) == 2:
        return "mm", [_Tensor((prod(a.shape[:-1]), a.shape[-1]), a.type), b]
    if len(a.shape) >= 3 and a.shape[:-2] == b.shape[:-2]:
        batch = prod(a.shape[:-2])
        return "bmm", [_Tensor((batch, *each.shape[-2:]), each.type) for each in (a, b)]
    return None


def _converted(payload: Any) -> _Kernel:
    x = _tensor(payload[0])
    return "copy_", [_Tensor(x.shape, _TORCH_TYPE[payload[1]]), x]


def _attention(payload: Any) -> _Kernel:
    q, k, v = (_tensor(payload[name]) for name in "qkv")
    mask = payload.get("mask")
    if mask is None and q.type in _HALF:
        return f"_scaled_dot_product_{_FLASH}_attention", [q, k, v]
    masks = [] if mask is None else [_tensor(mask)]
    return f"_scaled_dot_product_{_EFFICIENT}_attention", [q, k, v, *masks]


def _attention_backward(payload: Any) -> _Kernel:
    names = ("grad", "q", "k", "v", "out", "logsumexp")
    tensors = [_tensor(payload[name]) for name in names]
    return f"_scaled_dot_product_{_FLASH}_attention_backward", tensors


def _efficient_backward(payload: Any) -> _Kernel:
    q, k, v = (_tensor(payload[name]) for name in "qkv")
    bias = [] if payload.get("bias") is None else [_tensor(payload["bias"])]
    out = _Tensor((*q.shape[:-1], v.shape[-1]), q.type)
    padded = -(-q.shape[-2] // _LSE_MULTIPLE) * _LSE_MULTIPLE
    sums = _Tensor((*q.shape[:-2], padded), "Float")
    name = f"_scaled_dot_product_{_EFFICIENT}_attention_backward"
    return name, [out, q, k, v, *bias, out, sums]


_SPECIAL: Mapping[str, Callable[[Any], _Kernel | None]] = {
    "Linear": _linear,
    "MatMul": _matmul,
    "ConvDType": _converted,
    "SDPA": _attention,
    "SDPABackward": _attention_backward,
    "SDPAEfficientBackward": _efficient_backward,
}


# -- written ---------------------------------------------------------------------------------------

# Operators by their tensors with a dimension -> the call, and what stands behind the tensors.
_WRITTEN: Mapping[tuple[str, int], tuple[str, tuple[Any, ...]]] = {
    ("mm", 2): ("MM", ()),
    ("bmm", 2): ("BMM", ()),
    ("addmm", 3): ("AddMM", ()),
    ("baddbmm", 3): ("BAddBMM", ()),
    ("mul", 2): ("Mul", ()),
    ("mul", 1): ("MulScalar", ()),
    ("mul_", 2): ("Mul_", ()),
    ("mul_", 1): ("MulScalar_", ()),
    ("add", 2): ("Add", ()),
    ("add_", 2): ("Add_", ()),
    ("div", 2): ("Div", ()),
    ("div", 1): ("DivScalar", ()),
    ("pow", 1): ("Pow", ()),
    ("sqrt", 1): ("Sqrt", ()),
    ("sum", 1): ("Sum", ()),
    ("gelu", 1): ("Gelu", ()),
    ("gelu_backward", 2): ("GeluBackward", ()),
    ("addcmul_", 3): ("AddCMul_", ()),
    ("addcdiv_", 3): ("AddCDiv_", ()),
    ("masked_fill_", 2): ("MaskedFill_", ()),
    ("where", 3): ("Where", ()),
    ("where", 2): ("WhereScalar", ()),
    ("zero_", 1): ("ZerosLike", ()),
    ("_softmax", 1): ("Softmax", (-1,)),
    ("_softmax_backward_data", 2): ("SoftmaxBackward", (-1,)),
}
_FOREACH = {
    "_foreach_addcmul_": ("ForeachAddCMul_", 3),
    "_foreach_addcdiv_": ("ForeachAddCDiv_", 3),
}


def write_phantora(folder: Path, times: OperationTimes, gpu: str) -> tuple[str, ...]:
    """Write times that are known by types into a folder, which is made if need be; `gpu` names what
    they are of. Returns what was left out and why: operators of which Phantora has no call, or
    whose call says more than a table knows (whether attention is causal). Softmax is that of the
    last dimension. Raises OSError."""
    rows: dict[str, int] = {}
    left_out: dict[str, int] = {}

    def leave(why: str) -> None:
        left_out[why] = left_out.get(why, 0) + 1

    for name, _ in times.by_operation:
        leave(f"{name}: has no dtypes")
    for (operator, shapes, types), ns in sorted(times.typed.items()):
        call = _call_of(operator.removeprefix("aten::"), shapes, types.split(";"))
        if call is None:
            leave(f"{operator} of {len(shapes)} tensors: Phantora has no such call, or says more")
        else:
            rows[json.dumps(call, separators=(",", ":"), sort_keys=True)] = ns
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / COMPUTE_FILE, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_HEADS[0])
        writer.writerows(sorted(rows.items()))
    manifest = (
        "# Phantora performance database\n\n"
        f"- **GPU:** {gpu}\n- **Schema version:** 1\n- **compute entries:** {len(rows)}\n"
    )
    (folder / _MANIFEST_FILE).write_text(manifest, encoding="utf-8")
    return tuple(f"{why} ({count} left out)" for why, count in sorted(left_out.items()))


def _call_of(name: str, shapes: Shapes, types: Sequence[str]) -> dict[str, Any] | None:
    if any(each not in _CODE for each in types):
        return None
    tensors = [[_CODE[kind], list(shape)] for kind, shape in zip(types, shapes, strict=True)]
    if name in _FOREACH:
        call, lists = _FOREACH[name]
        each, rest = divmod(len(tensors), lists)
        if rest or not each:
            return None
        parts = [tensors[at * each : (at + 1) * each] for at in range(lists)]
        return {call: [_repeated(part) for part in parts]}
    if name == "copy_" and len(tensors) == 2 and shapes[0] == shapes[1] and types[0] != types[1]:
        return {"ConvDType": [tensors[1], _NAME[types[0]]]}
    found = _WRITTEN.get((name, len(tensors)))
    if found is None:
        return None
    call, more = found
    return {call: tensors[0] if len(tensors) == 1 and not more else [*tensors, *more]}


_NAME = {ours: name for _, name, ours in _TYPES}


def _repeated(tensors: list[Any]) -> Any:
    """A list in Phantora's compact form."""
    many = len(tensors)
    for period in range(1, many // 2 + 1):
        if many % period == 0 and tensors == tensors[:period] * (many // period):
            return {"R": [many // period, tensors[:period]]}
    return tensors
