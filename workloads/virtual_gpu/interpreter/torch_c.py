"""The names that torch's Python expects in `torch._C` where it was built for CUDA.

Each is a function object of its own: torch's compiler keeps what it knows of them by object.
"""

from __future__ import annotations

import datetime
import sys
import types
from typing import Any

from .programs import Programs

_DRIVER = 12080
_NCCL = (2, 27, 5)
_CUDA = 1
"""torch's number of the kind of device (c10/core/DeviceType.h)."""


class Refused(RuntimeError):
    """The refusals of a virtual GPU."""


def complete(C: Any, gpu: Any, plan: dict[str, Any]) -> None:
    """Put the names into `torch._C`, which act by the compiled part, `gpu`."""
    C._has_cuda = True
    names = _classes(C, gpu, plan)
    names |= _devices(gpu, plan) | _streams(gpu) | _memory(gpu) | _rest() | _refusals()
    names["_cudart"] = _cudart(gpu)
    names["_nvtx"], names["_cudnn"] = _nvtx(), _cudnn()
    for name, value in names.items():
        setattr(C, name, value)
    make = C._c10d_init

    def c10d_init() -> Any:
        made = make()
        gpu.install_process_group()
        if plan["programs"]:
            gpu.run_programs(Programs(plan["programs"]))
        _complete_c10d(sys.modules.get("torch._C._distributed_c10d") or C._distributed_c10d, gpu)
        return made

    C._c10d_init = c10d_init
    make_autograd = C._autograd_init

    def autograd_init() -> Any:
        made = make_autograd()
        if gpu.profiles_streams():
            _complete_profiler(C._autograd)
        return made

    C._autograd_init = autograd_init


def _complete_profiler(autograd: Any) -> None:
    """A wheel for CPUs says that Kineto knows of nothing else; the compiled part tells it."""
    known = autograd._supported_activities

    def supported_activities() -> Any:
        return known() | {sys.modules["torch._C._profiler"].ProfilerActivity.CUDA}

    autograd._supported_activities = supported_activities


def _properties(plan: dict[str, Any]) -> Any:
    class _CudaDeviceProperties:
        name: str
        major: int
        minor: int
        total_memory: int
        multi_processor_count: int

        def __repr__(self) -> str:
            mib = self.total_memory >> 20
            return (
                f"_CudaDeviceProperties(name='{self.name}', major={self.major}, "
                f"minor={self.minor}, total_memory={mib}MB, "
                f"multi_processor_count={self.multi_processor_count})"
            )

    given = {
        "total_memory": plan["memory_bytes"],
        "is_integrated": 0,
        "is_multi_gpu_board": 0,
        "warp_size": 32,
        "max_threads_per_block": 1024,
        "regs_per_multiprocessor": 65536,
        "shared_memory_per_block": 49152,
        "uuid": "00000000-0000-0000-0000-000000000000",
        "pci_bus_id": 0,
        "pci_device_id": 0,
        "pci_domain_id": 0,
    } | plan["properties"]
    given["gcnArchName"] = given["name"]
    for name, value in given.items():
        setattr(_CudaDeviceProperties, name, value)
    return _CudaDeviceProperties


def _classes(C: Any, gpu: Any, plan: dict[str, Any]) -> dict[str, Any]:
    def now() -> Any:
        return sys.modules["torch"].cuda.current_stream()

    class _CudaStreamBase(C.Stream):  # type: ignore[misc]
        def __new__(
            cls,
            device: Any = None,
            priority: int = 0,
            stream_id: Any = None,
            device_index: Any = None,
            device_type: Any = None,
            stream_ptr: Any = None,
        ) -> Any:
            make = C.Stream.__new__
            if stream_ptr is not None:
                stream_id, device_index = stream_ptr, gpu.current_device()
            if stream_id is not None:
                return make(cls, stream_id=stream_id, device_index=device_index, device_type=_CUDA)
            return make(cls, device=f"cuda:{gpu.current_device()}", priority=priority)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        cuda_stream = property(lambda self: self.stream_id)
        priority = property(lambda self: 0)
        priority_range = staticmethod(lambda: (0, -5))

    class _CudaEventBase(C.Event):  # type: ignore[misc]
        def __new__(
            cls,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> Any:
            return C.Event.__new__(cls, device="cuda", enable_timing=enable_timing)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._timed = kwargs.get("enable_timing", bool(args and args[0]))

        cuda_event = property(lambda self: self.event_id)

        def record(self, stream: Any = None) -> None:
            super().record(now() if stream is None else stream)

        def wait(self, stream: Any = None) -> None:
            super().wait(now() if stream is None else stream)

        def elapsed_time(self, other: Any) -> float:
            ends = [gpu.event_moment(event.event_id) for event in (self, other)]
            if not (self._timed and other._timed):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if any(end is None for end in ends):
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            if not all(end.known for end in ends):
                raise RuntimeError("CUDA error: device not ready")
            return float(ends[1].ns - ends[0].ns) / 1e6

        def ipc_handle(self) -> Any:
            raise Refused("events shared between processes: not on a virtual GPU")

    return {
        "_CudaDeviceProperties": _properties(plan),
        "_CudaStreamBase": _CudaStreamBase,
        "_CudaEventBase": _CudaEventBase,
    }


def _devices(gpu: Any, plan: dict[str, Any]) -> dict[str, Any]:
    of_device = _properties(plan)()

    def init() -> None:
        gpu.use()
        cuda = sys.modules["torch"].cuda
        cuda.default_generators = tuple(gpu.generator(i) for i in range(gpu.device_count()))
        setattr(cuda, "_get_device_properties", lambda device: of_device)  # noqa: B010

    return {
        "_cuda_init": init,
        "_cuda_getDeviceCount": lambda: gpu.device_count(),
        "_cuda_setDevice": lambda device: gpu.set_device(device),
        "_cuda_getDevice": lambda: gpu.current_device(),
        "_cuda_exchangeDevice": lambda device: gpu.exchange_device(device),
        "_cuda_maybeExchangeDevice": lambda device: gpu.exchange_device(device),
        "_cuda_isInBadFork": lambda: gpu.is_forked(),
        "_cuda_canDeviceAccessPeer": lambda device, peer: True,
        "_cuda_getArchFlags": lambda: "sm_70 sm_80 sm_90",
        "_cuda_getCompiledVersion": lambda: _DRIVER,
        "_cuda_getDriverVersion": lambda: _DRIVER,
        "_cuda_synchronize": lambda: gpu.synchronize(-1),
        "_cuda_sleep": lambda cycles: gpu.sleep(cycles),
        "_nccl_version": lambda: (_NCCL[0] << 32) | (_NCCL[1] << 16) | _NCCL[2],
        "_nccl_version_suffix": lambda: b"",
    }


def _streams(gpu: Any) -> dict[str, Any]:
    def place(stream: int, device: int) -> tuple[int, int, int]:
        return stream, gpu.current_device() if device < 0 else device, _CUDA

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        gpu.set_stream(stream_id, device_index)

    return {
        "_cuda_getCurrentStream": lambda device: place(gpu.current_stream(device), device),
        "_cuda_getDefaultStream": lambda device: place(0, device),
        "_cuda_getStreamFromExternal": lambda address, device: place(address, device),
        "_cuda_getCurrentRawStream": lambda device: gpu.current_stream(device),
        "_cuda_setStream": set_stream,
        "_cuda_isCurrentStreamCapturing": lambda: False,
        "_cuda_set_sync_debug_mode": lambda mode: None,
        "_cuda_get_sync_debug_mode": lambda: 0,
    }


def _memory(gpu: Any) -> dict[str, Any]:
    def snapshot(*args: Any) -> dict[str, Any]:
        empty: list[Any] = []
        return {
            "segments": empty,
            "device_traces": empty,
            "allocator_settings": {},
            "external_annotations": empty,
        }

    return {
        "_cuda_memoryStats": lambda device: gpu.memory_statistics(device),
        "_cuda_resetPeakMemoryStats": lambda device: gpu.reset_peaks(device),
        "_cuda_resetAccumulatedMemoryStats": lambda device: gpu.reset_sums(device),
        "_cuda_emptyCache": lambda *args: gpu.empty_cache(),
        "_cuda_setMemoryFraction": lambda fraction, device: gpu.set_fraction(device, fraction),
        "_cuda_getMemoryFraction": lambda device: 1.0,
        "_cuda_memorySnapshot": snapshot,
        "_cuda_hostMemoryStats": lambda: {},  # noqa: PIE807
        "_cuda_resetPeakHostMemoryStats": lambda: None,
        "_cuda_resetAccumulatedHostMemoryStats": lambda: None,
        "_cuda_record_memory_history": lambda *args, **kwargs: None,
        "_cuda_record_memory_history_legacy": lambda *args, **kwargs: None,
        "_cuda_isHistoryEnabled": lambda: False,
        "_cuda_attach_out_of_memory_observer": lambda observer: None,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_cudaCachingAllocator_enable": lambda enabled: None,
        "_cuda_cudaCachingAllocator_set_allocator_settings": lambda text: None,
        "_host_emptyCache": lambda: None,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_lock_mutex": lambda: None,
        "_cuda_unlock_mutex": lambda: None,
    }


def _rest() -> dict[str, Any]:
    return {
        "_cuda_getCurrentBlasHandle": lambda: 1,
        "_cuda_getCurrentSolverHandle": lambda: 1,
        "_cuda_getCublasWorkspaceSize": lambda: 8 << 20,
        "_cuda_getCublasLtWorkspaceSize": lambda: 1 << 20,
        "_cuda_clearCublasWorkspaces": lambda: None,
        "_cuda_get_cudnn_benchmark_limit": lambda: 10,
        "_cuda_set_cudnn_benchmark_limit": lambda limit: None,
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_tunableop_enable": lambda enabled: None,
    }


def _refused(name: str, said: str) -> Any:
    def refuse(cls: Any, *args: Any, **kwargs: Any) -> Any:
        raise Refused(f"{said}: not on a virtual GPU")

    return type(name, (), {"__new__": refuse})


def _refusals() -> dict[str, Any]:
    def call(said: str) -> Any:
        def raising(*args: Any, **kwargs: Any) -> Any:
            raise Refused(f"{said}: not on a virtual GPU")

        return raising

    graphs, pools = "CUDA graphs", "memory pools"
    return {
        "_CUDAGraph": _refused("_CUDAGraph", graphs),
        "_graph_pool_handle": call(graphs),
        "_MemPool": _refused("_MemPool", pools),
        "_cuda_CUDAAllocator": _refused("_cuda_CUDAAllocator", "allocators of a program's own"),
        "_cuda_CUDAAllocator_AllocatorState": _refused(
            "_cuda_CUDAAllocator_AllocatorState", "allocators of a program's own"
        ),
        "_cuda_beginAllocateCurrentThreadToPool": call(pools),
        "_cuda_beginAllocateToPool": call(pools),
        "_cuda_endAllocateToPool": call(pools),
        "_cuda_releasePool": call(pools),
        "_broadcast_coalesced": call("DataParallel"),
        "_broadcast": call("DataParallel"),
        "_broadcast_out": call("DataParallel"),
        "_scatter": call("DataParallel"),
        "_gather": call("DataParallel"),
    }


def _cudart(gpu: Any) -> Any:
    class cudaError(int):
        success = 0

    def free_and_total(device: int) -> tuple[int, int]:
        total = gpu.total_memory()
        reserved = gpu.memory_statistics(device)["reserved_bytes"]["all"]["current"]
        return total - reserved, total

    module = types.ModuleType("torch._C._cudart")

    def put(name: str, value: Any) -> None:
        setattr(module, name, value)

    put("cudaError", cudaError)
    put("cudaGetErrorString", lambda error: "no error")
    put("cudaMemGetInfo", free_and_total)
    put("cudaDeviceSynchronize", lambda: (gpu.synchronize(-1), cudaError(0))[1])
    put("cudaStreamSynchronize", lambda stream: (gpu.synchronize_stream(stream), cudaError(0))[1])
    for name in ("HostRegister", "HostUnregister", "ProfilerStart", "ProfilerStop"):
        put(f"cuda{name}", lambda *args: cudaError(0))
    return module


def _nvtx() -> Any:
    module = types.ModuleType("torch._C._nvtx")
    for name in ("rangePushA", "rangePop", "rangeStartA"):
        setattr(module, name, lambda *args: 0)
    for name in ("markA", "rangeEnd", "deviceRangeStart", "deviceRangeEnd"):
        setattr(module, name, lambda *args: None)
    return module


def _cudnn() -> Any:
    module = types.ModuleType("torch._C._cudnn")
    setattr(module, "is_cuda", True)  # noqa: B010
    for name in ("getCompileVersion", "getRuntimeVersion"):
        setattr(module, name, lambda: (9, 10, 2))
    setattr(module, "getVersionInt", lambda: 91002)  # noqa: B010
    return module


def _complete_c10d(c10d: Any, gpu: Any) -> None:
    group = gpu.ProcessGroupNCCL
    config = {
        "blocking": 0,
        "cga_cluster_size": 4,
        "min_ctas": 1,
        "max_ctas": 32,
        "net_name": "IB",
        "split_share": 0,
    }
    group.NCCLConfig = type("NCCLConfig", (), config)
    names = {
        "ProcessGroupNCCL": group,
        "_DEFAULT_PG_NCCL_TIMEOUT": datetime.timedelta(minutes=10),
        "_dump_nccl_trace": lambda *args, **kwargs: b"",
        "_dump_nccl_trace_json": lambda *args, **kwargs: b"{}",
        "_hash_tensors": lambda *args, **kwargs: None,
    }
    # From 2.15 on a wheel for CUDA has these, too (GROUP_VARIABLES of `plan.py`).
    for name, backend in (("ProcessGroupNCCL2", "nccl2"), ("ProcessGroupNCCLLazy", "nccl-lazy")):
        if hasattr(c10d, name):
            names[name] = _refused(name, f"backend {backend}")
    for name, value in names.items():
        setattr(c10d, name, value)
