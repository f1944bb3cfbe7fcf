"""Torch's operations of `c10d`: the collectives and messages that they carry out.

`observer.py` beside this file loads it; it imports nothing but the program's own torch.
"""

from __future__ import annotations

from typing import Any

# Several records share a work: Gloo makes one operation of each tensor of these.
_ONE_EACH = ("allgather_into_tensor_coalesced_", "reduce_scatter_tensor_coalesced_")


def bytes_of(tensors: Any) -> int:
    if is_sparse(tensors):
        return bytes_of([tensors._indices(), tensors._values()])
    if hasattr(tensors, "element_size"):
        return int(tensors.numel() * tensors.element_size())
    return sum(bytes_of(each) for each in tensors)


def below(tensor: Any) -> Any:
    """The dispatch keys below the observer for operations on a tensor."""
    from torch._C import DispatchKey, DispatchKeySet

    kind = str(tensor.device.type)
    return DispatchKeySet(getattr(DispatchKey, "Meta" if kind == "meta" else kind.upper()))


def is_sparse(tensor: Any) -> bool:
    return str(getattr(tensor, "layout", "")) == "torch.sparse_coo"


def first_tensor(arguments: Any) -> Any:
    """The first tensor among arguments and lists of them; None where there is none."""
    if hasattr(arguments, "element_size"):
        return arguments
    if isinstance(arguments, (list, tuple)):
        found = (first_tensor(each) for each in arguments)
        return next((tensor for tensor in found if tensor is not None), None)
    return None


def _uneven(sizes: Any) -> bool:
    return len(set(sizes)) > 1


def _parts_bytes(name: str, args: Any, ranks: int) -> list[int]:
    """The bytes that this rank sends to each member in an all-to-all."""
    if name == "alltoall_":
        return [bytes_of(each) for each in args[1]]
    sent, splits = args[1], list(args[4])
    if not splits:
        return [bytes_of(sent) // ranks] * ranks
    rows = sum(splits)
    return [bytes_of(sent) // rows * each if rows else 0 for each in splits]


# Operation -> kind, index of the process group, and from its arguments and the group's size:
# (size in bytes as nccl-tests counts it, root, whether its parts are of unequal size).
OPERATIONS: dict[str, tuple[str, int, Any]] = {
    "allreduce_": ("all_reduce", 1, lambda a, n: (bytes_of(a[0]), 0, False)),
    "allreduce_coalesced_": ("all_reduce", 1, lambda a, n: (bytes_of(a[0]), 0, False)),
    "broadcast_": ("broadcast", 1, lambda a, n: (bytes_of(a[0]), a[2], False)),
    "reduce_": ("reduce", 1, lambda a, n: (bytes_of(a[0]), a[3], False)),
    "allgather_": ("all_gather", 2, lambda a, n: (bytes_of(a[0]), 0, False)),
    "_allgather_base_": ("all_gather", 2, lambda a, n: (bytes_of(a[0]), 0, False)),
    "allgather_coalesced_": ("all_gather", 2, lambda a, n: (bytes_of(a[1]) * n, 0, False)),
    "allgather_into_tensor_coalesced_": ("all_gather", 2, None),
    "reduce_scatter_": ("reduce_scatter", 2, lambda a, n: (bytes_of(a[1]), 0, False)),
    "_reduce_scatter_base_": ("reduce_scatter", 2, lambda a, n: (bytes_of(a[1]), 0, False)),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 2, None),
    "gather_": ("gather", 2, lambda a, n: (bytes_of(a[1]) * n, a[3], False)),
    "scatter_": ("scatter", 2, lambda a, n: (bytes_of(a[0]) * n, a[3], False)),
    "alltoall_base_": (
        "all_to_all", 2, lambda a, n: (bytes_of(a[1]), 0, _uneven(a[3]) or _uneven(a[4])),
    ),
    "alltoall_": (
        "all_to_all", 2, lambda a, n: (bytes_of(a[1]), 0, _uneven([bytes_of(x) for x in a[1]])),
    ),
    "barrier": ("barrier", 1, lambda a, n: (0, 0, False)),
}  # fmt: skip
MESSAGES = ("send", "recv_", "recv_any_source_")
# Its messages are Gloo's own; it takes two numbers of its group's count.
MONITORED = "monitored_barrier_"


_UNPREDICTED = {
    "reduce_scatter_": "torch's reduce-scatter of a list, an algorithm that no predictor knows"
}
"""Operations that are not carried out as others of their kind are: why nobody predicts them."""


def collectives(name: str, args: Any, ranks: int) -> list[dict[str, Any]]:
    """The collectives of an operation of `OPERATIONS`, in a group of so many ranks: of each
    collective its kind, sizes and root, and where its parts are uneven, those."""
    kind, _, measure = OPERATIONS[name]
    if name in _ONE_EACH:
        # All-gathers have their whole arrays in the outputs, reduce-scatters in the inputs.
        whole = args[0] if kind == "all_gather" else args[1]
        measured = [(bytes_of(each), 0, False) for each in whole]
    else:
        measured = [measure(args, ranks)]
    first = first_tensor(args)
    element_bytes = first.element_size()
    why = _UNPREDICTED.get(name)
    if is_sparse(first):
        why = (
            "a sparse array, whose indices and values are gathered; how many, the log does not tell"
        )
    return [
        {
            "kind": kind,
            "size_bytes": size_bytes,
            "element_bytes": element_bytes,
            "root": root,
        }
        | ({"uneven": True, "parts_bytes": _parts_bytes(name, args, ranks)} if uneven else {})
        | ({"unpredicted": why} if why else {})
        for size_bytes, root, uneven in measured
    ]
