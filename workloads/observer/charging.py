"""Charges a program's computing: the time that a device takes for each operation of its torch.

A mode of torch sees what the thread that made the default process group computes, autograd
included, as autograd of CPU tensors runs in the thread that calls it. An operation takes the
roofline's time (Williams et al., CACM 2009). What it owes is slept off before anybody else can see
the difference: before a collective is posted, before a wait, where a number is read (`item`), and
at the end of an optimizer's step. `sitecustomize.py` beside this file loads it; it imports nothing
but the standard library and the program's own torch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
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
_COMMUNICATION = frozenset(("c10d", "_c10d_functional", "_c10d_functional_autograd"))
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
# Of the first tensor, these read no more than they return.
_LOOKUPS = frozenset(("embedding", "index_select", "gather", "index", "take"))
# These read a row of the first tensor for each index, and add rows up.
_BAGS = frozenset(("_embedding_bag", "_embedding_bag_forward_only"))
# Of the first tensor, these change no more than they are given.
_SCATTERS = frozenset(
    ("index_put_", "_index_put_impl_", "index_add_", "index_copy_", "scatter_", "scatter_add_")
)


class Device:
    """A roofline, from the plan of a run: rates per second, times in nanoseconds."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._flops_16bit: float = plan["flops_16bit_per_s"]
        self._flops_32bit: float = plan["flops_32bit_per_s"]
        self._memory_bytes: float = plan["memory_bytes_per_s"]
        self._overhead_ns: int = plan["overhead_ns"]
        self._slowdown: int = plan["slowdown"]

    def time_ns(self, flops: int, moved_bytes: int, item_bytes: int) -> int:
        """What `compute` of a spec gives a kernel (topologies/spec/compute_section.py)."""
        peak = self._flops_16bit if item_bytes <= 2 else self._flops_32bit
        seconds = max(flops / peak, moved_bytes / self._memory_bytes)
        return (round(seconds * 1e9) + self._overhead_ns) * self._slowdown


class Charging:
    """What a rank's main thread owes for its computing.

    `sleep(duration_ns)` has time pass and returns when it began and ended. `log(line)` takes a
    `compute` event without its iteration. `trouble(error)` is told of the first operation that
    could not be charged.
    """

    def __init__(
        self,
        plan: dict[str, Any],
        sleep: Callable[[int], tuple[int, int]],
        log: Callable[[dict[str, Any]], None],
        trouble: Callable[[Exception], None],
    ) -> None:
        self._device = Device(plan)
        self._sleep, self._log, self._trouble = sleep, log, trouble
        self._thread = threading.get_ident()
        self._mode: Any = None
        self._counters: dict[Any, Any] = {}
        self._troubled = False
        self.optimizing = False
        """Whether an optimizer is making a step."""
        self._phase = ""
        self._owed_ns = self._flops = self._bytes = self._operations = 0

    # -- from when to when -------------------------------------------------------------------------

    def begin(self) -> None:
        """Charge what this thread computes from now on. Raises ImportError where torch counts no
        FLOPs."""
        if self._mode is not None:
            return
        self._counters = _counters()
        self._mode = _mode(self)
        self._mode.__enter__()

    def end(self) -> None:
        """Have the time pass that is owed, and charge nothing from now on."""
        from torch.utils import _python_dispatch as dispatch

        self.settle()
        mine = self._mode is not None and threading.get_ident() == self._thread
        if mine and dispatch._get_current_dispatch_mode() is self._mode:
            self._mode.__exit__(None, None, None)
            self._mode = None

    def settle(self) -> None:
        """Have the time pass that is owed. Other threads owe nothing."""
        if threading.get_ident() != self._thread or not self._operations:
            return
        start_ns, end_ns = self._sleep(self._owed_ns)
        line = {
            "event": "compute", "name": self._phase, "phase": self._phase, "start_ns": start_ns,
            "end_ns": end_ns, "flops": self._flops, "bytes": self._bytes,
            "operations": self._operations,
        }  # fmt: skip
        self._owed_ns = self._flops = self._bytes = self._operations = 0
        self._log(line)

    # -- operations --------------------------------------------------------------------------------

    def add(self, operation: Any, args: Any, kwargs: Any, returned: Any) -> None:
        """Owe the time of an operation that torch has carried out."""
        try:
            if _is_read(operation):
                self.settle()
            if not _is_free(operation):
                self._owe(operation, args, kwargs, returned)
        except Exception as error:
            if not self._troubled:
                self._troubled = True
                self._trouble(error)

    def _owe(self, operation: Any, args: Any, kwargs: Any, returned: Any) -> None:
        tensors = list(_tensors((returned, args)))
        if any(t.device.type == "meta" or _is_shape_only(type(t)) for t in tensors):
            return
        counter = self._counters.get(operation._overloadpacket)
        flops = 0 if counter is None else int(counter(*args, **kwargs, out_val=returned))
        moved_bytes = _moved_bytes(operation, args, kwargs, returned)
        item_bytes = tensors[0].element_size() if tensors else 4
        phase = self._current_phase()
        if phase != self._phase:
            self.settle()
            self._phase = phase
        self._owed_ns += self._device.time_ns(flops, moved_bytes, item_bytes)
        self._flops += flops
        self._bytes += moved_bytes
        self._operations += 1

    def _current_phase(self) -> str:
        import torch

        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return "optimizer" if self.optimizing else "forward"


def _mode(charging: Charging) -> Any:
    """The mode of torch that tells `charging` of operations. Tensors of classes of their own, such
    as DTensor, act by operations of plain ones, which are seen; these are charged."""
    import torch
    from torch._C._dynamo.eval_frame import set_eval_frame
    from torch.utils._python_dispatch import TorchDispatchMode

    plain = (torch.Tensor, torch.nn.Parameter)

    def act(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if not hasattr(func, "_schema"):
            return func(*args, **kwargs)
        if func.namespace in _COMMUNICATION:
            charging.settle()
            return func(*args, **kwargs)
        # In inference mode, operations come that consist of others.
        if func._can_decompose():
            with mode:
                return func.decompose(*args, **kwargs)
        returned = func(*args, **kwargs)
        charging.add(func, args, kwargs, returned)
        return returned

    class ChargingMode(TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch imports its compiler, which takes seconds

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if any(_is_shape_only(kind) for kind in types):
                return func(*args, **(kwargs or {}))
            if any(kind not in plain for kind in types):
                return NotImplemented
            compiling = set_eval_frame(None)
            try:
                return act(self, func, args, kwargs or {})
            finally:
                set_eval_frame(compiling)

    _never_compile(ChargingMode.__torch_dispatch__)
    return ChargingMode()


def _is_shape_only(kind: Any) -> bool:
    """Whether tensors of a class have shapes and no contents: torch finds out the shapes of results
    with them. They have a mode of their own below this one."""
    return str(kind.__module__).startswith("torch._subclasses.")


def _never_compile(function: Any) -> None:
    """Have torch's compiler keep out of a function, without importing it."""
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "skip_code"):
        eval_frame.skip_code(function.__code__)
    else:
        skip = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(skip, skip)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)


def _counters() -> dict[Any, Any]:
    """FLOPs of an operation, by what torch knows of it. Attention on a CPU has an operation of its
    own, which torch's table lacks."""
    import torch
    from torch.utils import flop_counter

    found = dict(flop_counter.flop_registry)
    forward = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    backward = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)
    alike = torch.ops.aten._scaled_dot_product_flash_attention
    if forward is not None and forward not in found and alike in found:
        found[forward] = found[alike]
    alike = torch.ops.aten._scaled_dot_product_flash_attention_backward
    if backward is not None and backward not in found and alike in found:
        found[backward] = found[alike]
    return found


# -- what an operation moves -------------------------------------------------------------------


def _name(operation: Any) -> str:
    return str(operation._schema.name).partition("::")[2]


def _is_read(operation: Any) -> bool:
    """Whether the program reads a number: on an accelerator, it waits for the device there."""
    return _name(operation) == "_local_scalar_dense"


def _is_free(operation: Any) -> bool:
    """Whether it is no kernel of a device. Views have outputs that are their inputs, unwritten."""
    if operation.namespace in _NOT_OF_DEVICES or _name(operation) in _FREE:
        return True
    returns = [each.alias_info for each in operation._schema.returns]
    return bool(returns) and all(each is not None and not each.is_write for each in returns)


def _moved_bytes(operation: Any, args: Any, kwargs: Any, returned: Any) -> int:
    """Bytes that a device's memory gives and takes: tensors that are read, and those written."""
    schema, name = operation._schema, _name(operation)
    outputs = sum(
        _held_bytes(each)
        for value, of in zip(_outputs(schema, returned), schema.returns, strict=False)
        if of.alias_info is None
        for each in _tensors(value)
    )
    moved, first, others = outputs, None, 0
    for number, argument in enumerate(schema.arguments):
        given = args[number] if number < len(args) else kwargs.get(argument.name)
        held = [_held_bytes(each) for each in _tensors(given)]
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
    """What it has in memory: an expanded one repeats its storage."""
    if _is_sparse(tensor):
        return _held_bytes(tensor._indices()) + _held_bytes(tensor._values())
    own = int(tensor.numel() * tensor.element_size())
    return min(own, int(tensor.untyped_storage().nbytes()))


def _outputs(schema: Any, returned: Any) -> tuple[Any, ...]:
    return (returned,) if len(schema.returns) == 1 else tuple(returned or ())


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors of a value and of lists in it."""
    if hasattr(value, "element_size"):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
