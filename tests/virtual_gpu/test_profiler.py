"""torch.profiler of a script: the device's rows in its Chrome trace, and times by operator."""

from __future__ import annotations

import json
from typing import Any

from tests.virtual_gpu.conftest import OnGpu

_SCRIPT = """
    import json, os, tempfile
    from torch.profiler import ProfilerActivity, profile, record_function
    x, y = floats(1000), floats(100)
    side = torch.cuda.Stream()
    kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=kinds, record_shapes=True) as taken:
        a = x * 2                                   # default: 8,000 ns
        with torch.cuda.stream(side):
            b = y + 1                               # side: 800 ns
        c = torch.ones(50).to("cuda")               # 200 ns over the link
        torch.cuda.synchronize()
    path = os.path.join(tempfile.mkdtemp(), "trace.json")
    taken.export_chrome_trace(path)
    totals = {each.key: each.self_device_time_total for each in taken.key_averages()}
    print(json.dumps({"trace": json.load(open(path)), "totals": totals}))
"""


def _profile(on_gpu: OnGpu) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(on_gpu(_SCRIPT))
    return found


def test_a_trace_has_kernels_and_copies_on_their_streams(on_gpu: OnGpu) -> None:
    said = _profile(on_gpu)
    events = [each for each in said["trace"]["traceEvents"] if each["ph"] == "X"]
    kernels = {each["name"]: each for each in events if each.get("cat") == "kernel"}
    (copy,) = [each for each in events if each.get("cat") == "gpu_memcpy"]
    assert {name: each["dur"] for name, each in kernels.items()} == {
        "aten::mul": 8.0, "aten::add": 0.8
    }  # fmt: skip
    assert copy["name"] == "Memcpy HtoD" and copy["dur"] == 0.2
    # The copy is behind the product on the default stream, which is CUPTI's number 7.
    assert kernels["aten::mul"]["tid"] == copy["tid"] == 7
    assert copy["ts"] - kernels["aten::mul"]["ts"] >= 7.999
    assert kernels["aten::add"]["tid"] == kernels["aten::add"]["args"]["stream"] != 7


def test_a_kernel_is_linked_to_its_launch_and_its_operator(on_gpu: OnGpu) -> None:
    events = _profile(on_gpu)["trace"]["traceEvents"]
    operators = {
        each["args"]["External id"]: each["name"] for each in events if each.get("cat") == "cpu_op"
    }
    launches = {
        each["args"]["correlation"]: each for each in events if each.get("cat") == "cuda_runtime"
    }
    arrows = {(each["id"], each["ph"]) for each in events if each.get("cat") == "ac2g"}
    kernels = [each for each in events if each.get("cat") == "kernel"]
    assert len(kernels) == 2
    for kernel in kernels:
        number = kernel["args"]["correlation"]
        assert launches[number]["name"] == "cudaLaunchKernel"
        assert operators[kernel["args"]["External id"]] == kernel["name"]
        assert {(number, "s"), (number, "f")} <= arrows


def test_times_by_operator_are_the_devices(on_gpu: OnGpu) -> None:
    totals = _profile(on_gpu)["totals"]
    assert abs(totals["aten::mul"] - 8.0) < 0.01  # microseconds
    assert abs(totals["aten::add"] - 0.8) < 0.01
