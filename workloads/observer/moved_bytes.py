"""The bytes that an operation of torch reads and writes in a device's memory, by its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# These are no kernels of a device: they allocate, or change what a tensor shows.
_FREE = frozenset(
    (
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "_efficientzerotensor",
        "resize_",
        "set_",
        "_unsafe_view",
        "detach_",
        "t_",
        "transpose_",
        "squeeze_",
        "unsqueeze_",
        "as_strided_",
        "is_same_size",
        "is_pinned",
        "record_stream",
        "sym_size",
        "sym_numel",
        "sym_stride",
        "sym_storage_offset",
        "_nnz",
        "sparse_dim",
        "dense_dim",
        "_coalesced_",
        "is_coalesced",
        "_sparse_coo_tensor_unsafe",
        "_sparse_coo_tensor_with_dims_and_tensors",
        "_local_scalar_dense",
    )
)
_NOT_OF_DEVICES = frozenset(("prim", "profiler"))
# These do not read what they write.
_OVERWRITES = frozenset(
    (
        "copy_",
        "zero_",
        "fill_",
        "uniform_",
        "normal_",
        "bernoulli_",
        "random_",
        "exponential_",
        "_foreach_zero_",
        "_foreach_copy_",
    )
)
# These read no more of the first tensor than they return.
_LOOKUPS = frozenset(("embedding", "index_select", "gather", "index", "take"))
# These read a row of the first tensor for each index, and add rows up.
_BAGS = frozenset(("_embedding_bag", "_embedding_bag_forward_only"))
# These change no more of the first tensor than they are given.
_SCATTERS = frozenset(
    ("index_put_", "_index_put_impl_", "index_add_", "index_copy_", "scatter_", "scatter_add_")
)


def _name(operation: Any) -> str:
    return str(operation._schema.name).partition("::")[2]


def is_read(operation: Any) -> bool:
    """Whether the program reads a number: on an accelerator, it waits for the device there."""
    return _name(operation) == "_local_scalar_dense"


def shapes_of(operation: Any, args: Any, kwargs: Any) -> tuple[tuple[int, ...], ...]:
    """The shapes of the tensors that it is given, as a trace has them: without those of no
    dimension."""
    schema = operation._schema
    given = [
        args[number] if number < len(args) else kwargs.get(argument.name)
        for number, argument in enumerate(schema.arguments)
    ]
    return tuple(tuple(each.shape) for each in tensors_in(given) if each.dim())


def is_free(operation: Any) -> bool:
    """Whether it is no kernel of a device. Views have outputs that are their inputs, unwritten."""
    if operation.namespace in _NOT_OF_DEVICES or _name(operation) in _FREE:
        return True
    returns = [each.alias_info for each in operation._schema.returns]
    return bool(returns) and all(each is not None and not each.is_write for each in returns)


def moved_bytes_of(operation: Any, args: Any, kwargs: Any, returned: Any) -> int:
    """Bytes that a device's memory gives and takes: tensors that are read, and those written."""
    schema, name = operation._schema, _name(operation)
    outputs = sum(
        _held_bytes(each)
        for value, of in zip(_outputs(schema, returned), schema.returns, strict=False)
        if of.alias_info is None
        for each in tensors_in(value)
    )
    moved, first, others = outputs, None, 0
    for number, argument in enumerate(schema.arguments):
        given = args[number] if number < len(args) else kwargs.get(argument.name)
        held = [_held_bytes(each) for each in tensors_in(given)]
        written = argument.alias_info is not None and argument.alias_info.is_write
        read = not (argument.is_out or (written and name in _OVERWRITES))
        times = int(written) + int(read)
        if first is None and held:
            first = sum(held), times
        else:
            others += sum(held)
            moved += times * sum(held)
    if first is None:
        return moved
    held_bytes, times = first
    if name in _LOOKUPS:
        held_bytes = min(held_bytes, outputs)
    elif name in _BAGS:
        table, indices = args[0], args[1]
        row_bytes = table[0].numel() * table.element_size() if table.shape[0] else 0
        held_bytes = min(held_bytes, indices.numel() * row_bytes)
    elif name in _SCATTERS or _adds_sparse(args):
        held_bytes = min(held_bytes, others)
    return moved + times * held_bytes


def _adds_sparse(args: Any) -> bool:
    """Whether a dense tensor is given a sparse one, as a step does with sparse gradients."""
    import torch

    if len(args) < 2 or not all(isinstance(each, torch.Tensor) for each in args[:2]):
        return False
    return not _is_sparse(args[0]) and _is_sparse(args[1])


def _is_sparse(tensor: Any) -> bool:
    import torch

    return tensor.layout is torch.sparse_coo


def _held_bytes(tensor: Any) -> int:
    """Its bytes in memory: an expanded one repeats its storage."""
    if _is_sparse(tensor):
        return _held_bytes(tensor._indices()) + _held_bytes(tensor._values())
    own = int(tensor.numel() * tensor.element_size())
    return min(own, int(tensor.untyped_storage().nbytes()))


def _outputs(schema: Any, returned: Any) -> tuple[Any, ...]:
    return (returned,) if len(schema.returns) == 1 else tuple(returned or ())


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors of a value and of lists in it."""
    if hasattr(value, "element_size"):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
