"""Programs with virtual GPUs, in processes whose clock steps: time passes by waiting alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from topologies.spec.compute_section import ComputeSpec
from workloads.observer import OBSERVER, PLAN_VARIABLE
from workloads.virtual_gpu.building import Torch, library_for
from workloads.virtual_gpu.plan import gpu_plan

A_BYTE_A_NANOSECOND = {
    "device": "custom",
    "flops": "1000TFLOPS",
    "memory_bandwidth": "1GB/s",
    "host_link": "1GB/s",
    "memory": 8 << 30,
}

OnGpu = Callable[..., str]


@pytest.fixture(scope="session")
def gpu_library() -> str:
    return str(library_for(Torch.of(sys.executable)))


Server = subprocess.Popen[str]


@pytest.fixture(scope="session")
def gpu_servers(
    gpu_library: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Server]]:
    """A process of `served.py` for each kind of contents."""
    servers: dict[str, Server] = {}
    directory = tmp_path_factory.mktemp("gpus")

    def server(contents: str) -> Server:
        if contents in servers:
            return servers[contents]
        plan = directory / f"{contents}.json"
        section = ComputeSpec.model_validate(A_BYTE_A_NANOSECOND | {"contents": contents})
        gpus = gpu_plan(section, 1, gpu_library, "", [], steps_clock=True)
        head = {"hosts": ["h0"], "addresses": ["127.0.0.1"], "store_port": 29500}
        kept = {
            "observe": False,
            "grid_ns": None,
            "charge": None,
            "programs": None,
            "moments": None,
        }
        plan.write_text(json.dumps(head | kept | {"gpu": gpus}))
        environment = dict(os.environ) | {PLAN_VARIABLE: str(plan), "PYTHONPATH": str(OBSERVER)}
        servers[contents] = started = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("served.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert started.stdout is not None and started.stdout.readline() == "ready\n"
        return started

    yield server
    for each in servers.values():
        with each:
            assert each.stdin is not None
            each.stdin.close()


@pytest.fixture
def on_gpu(gpu_servers: Callable[[str], Server], gpu_library: str, tmp_path: Path) -> OnGpu:
    """Runs a script, which has `torch` and `gpu`, the compiled part, and returns its output; with
    `fails`, that of one that ends with an error. `compute` are keys of the section beside those by
    which a kernel takes a nanosecond for each byte."""

    def run(
        script: str,
        times: list[list[Any]] | None = None,
        fails: bool = False,
        **compute: Any,
    ) -> str:
        section = ComputeSpec.model_validate(A_BYTE_A_NANOSECOND | compute)
        plan = gpu_plan(section, 1, gpu_library, "", times or [], steps_clock=True)
        server = gpu_servers(section.contents)
        out, err = tmp_path / "stdout", tmp_path / "stderr"
        order = {
            "plan": plan,
            "script": textwrap.dedent(script),
            "stdout": str(out),
            "stderr": str(err),
        }
        assert server.stdin is not None and server.stdout is not None
        print(json.dumps(order), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        assert (status != 0) == fails, err.read_text()[-3000:]
        return err.read_text() if fails else out.read_text()

    return run
