"""Charges a program's computing: the time that a device takes for each operation of its torch.

With a trace of PyTorch's profiler, an operation takes what it took there, by name and shapes.

A mode of torch sees what the thread that made the default process group computes, autograd
included, as autograd of CPU tensors runs in the thread that calls it. An operation takes the
roofline's time (Williams et al., CACM 2009). The time that it owes is slept off before anybody else
can see the difference: before a collective is posted, before a wait, where a number is read
(`item`), and at the end of an optimizer's step. `sitecustomize.py` beside this file loads it; it
imports nothing but the standard library and the program's own torch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .moved_bytes import is_free, is_read, moved_bytes_of, shapes_of, tensors_in
from .rates import Device, NotInTrace, Recorded, attention_of

_COMMUNICATION = frozenset(("c10d", "_c10d_functional", "_c10d_functional_autograd"))


class Charging:
    """The debt of a rank's main thread for its computing.

    `plan` has a `device` or None, `times` of a trace or None, and the `slowdown` of all.
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
        self._device = None if plan["device"] is None else Device(plan["device"])
        self._recorded = None if plan["times"] is None else Recorded(plan["times"])
        self._slowdown: int = plan["slowdown"]
        self._sleep, self._log, self._trouble = sleep, log, trouble
        self._thread = threading.get_ident()
        self._mode: Any = None
        self._counters: dict[Any, Any] = {}
        self._troubled = False
        self.optimizing = False
        """Whether an optimizer is making a step."""
        self._phase = ""
        self._owed_ns = self._flops = self._bytes = self._operations = self._by_trace = 0
        self.lacked: dict[str, int] = {}
        """How often the trace lacked an operation, by the words for it."""

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
        if self._recorded is not None:
            line["by_trace"] = self._by_trace
        self._owed_ns = self._flops = self._bytes = self._operations = self._by_trace = 0
        self._log(line)

    # -- operations --------------------------------------------------------------------------------

    def add(self, operation: Any, args: Any, kwargs: Any, returned: Any) -> None:
        """Owe the time of an operation that torch has carried out. Raises NotInTrace."""
        try:
            if is_read(operation):
                self.settle()
            if not is_free(operation):
                self._owe(operation, args, kwargs, returned)
        except NotInTrace:
            raise
        except Exception as error:
            if not self._troubled:
                self._troubled = True
                self._trouble(error)

    def _owe(self, operation: Any, args: Any, kwargs: Any, returned: Any) -> None:
        tensors = list(tensors_in((returned, args)))
        if any(t.device.type == "meta" or _is_shape_only(type(t)) for t in tensors):
            return
        counter = self._counters.get(operation._overloadpacket)
        flops = 0 if counter is None else int(counter(*args, **kwargs, out_val=returned))
        moved_bytes = moved_bytes_of(operation, args, kwargs, returned)
        item_bytes = tensors[0].element_size() if tensors else 4
        time_ns = self._recorded_ns(operation, args, kwargs)
        by_trace = time_ns is not None
        if time_ns is None:
            assert self._device is not None
            arguments = [tuple(t.shape) for t in tensors_in(args)]
            attention = attention_of(operation._schema.name, arguments) or ("matrix", None)
            time_ns = self._device.time_ns(flops, moved_bytes, item_bytes, *attention)
        phase = self._current_phase()
        if phase != self._phase:
            self.settle()
            self._phase = phase
        self._owed_ns += time_ns * self._slowdown
        self._by_trace += by_trace
        self._flops += flops
        self._bytes += moved_bytes
        self._operations += 1

    def _recorded_ns(self, operation: Any, args: Any, kwargs: Any) -> int | None:
        """Its time in the trace; None where the device's roofline is to tell."""
        if self._recorded is None:
            return None
        name, shapes = operation._schema.name, shapes_of(operation, args, kwargs)
        found = self._recorded.time_ns(name, shapes)
        if found is None:
            said = self._recorded.missing(name, shapes)
            if self._device is None:
                raise NotInTrace(f"{said}; with a compute.device, that is charged by its roofline")
            self.lacked[said] = self.lacked.get(said, 0) + 1
        return found

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
    """FLOPs of an operation, by torch's own table. Attention on a CPU has an operation of its own,
    which torch's table lacks."""
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
