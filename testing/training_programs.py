"""Training scripts for GPUs as programs of `groundwire exec`, framework by framework.

The scripts, in `training/`, are what the frameworks' users write: they know nothing of Groundwire,
and run in an environment that has the framework.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent / "training"


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is run: by torchrun on `servers` of `gpus` each, in a Python that has
    `packages`. `before` is a script that makes its files first. `more` are sections of the spec,
    `options` of `groundwire exec`. `peak_gib` is the memory of a GPU on hardware."""

    words: tuple[str, ...]
    packages: tuple[str, ...] = ()
    servers: int = 2
    gpus: int = 2
    before: str | None = None
    more: Mapping[str, object] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    peak_gib: float | None = None

    def argv(self) -> list[str]:
        """The command line behind `--`. Scripts are named by their paths."""
        words = [str(HERE / word) if word.endswith(".py") else word for word in self.words]
        return ["torchrun", *words]

    def fabric(self) -> str:
        """A spec of its servers: 400 Gb/s a GPU between them, 3.6 Tb/s within."""
        fabric = {
            "kind": "rails",
            "servers": self.servers,
            "hosts_per_server": self.gpus,
            "link": {"rate": "400Gbps", "delay": "1us", "mtu": 9000},
            "links": {"scale-up": {"rate": "3600Gbps", "delay": "100ns", "mtu": 9000}},
        }
        return yaml.safe_dump({"fabric": fabric, "predict": ["alpha-beta"], **self.more})


def _torch(way: str) -> Program:
    return Program(("torch_parallel.py", way))


_HUGGING_FACE = ("transformers==5.24.0", "accelerate==1.15.0")
_DEEPSPEED = (*_HUGGING_FACE, "deepspeed==0.19.8")
_TITAN = ("torchtitan==0.2.2", "triton==3.9.0", "datasets", "tokenizers")

PROGRAMS: dict[str, Program] = {
    "torch-ddp": _torch("ddp"),
    "torch-fsdp1": _torch("fsdp1"),
    "torch-fsdp2": _torch("fsdp2"),
    "torch-tp": _torch("tp"),
    "torch-sp": _torch("sp"),
    "torch-pp": _torch("pp"),
    "torch-cp": _torch("cp"),
    "torch-fsdp2-tp": Program(("llama.py",), gpus=4),
    "experts": Program(("experts.py",)),
    "triton": Program(("triton_kernel.py",), ("triton==3.9.0",)),
    "trainer": Program(("huggingface.py",), _HUGGING_FACE),
    "accelerate": Program(("accelerated.py",), _HUGGING_FACE),
    "zero-1": Program(("zero.py", "1"), _DEEPSPEED),
    "zero-2": Program(("zero.py", "2"), _DEEPSPEED),
    "zero-3": Program(("zero.py", "3"), _DEEPSPEED),
    "megatron": Program(("megatron_gpt.py", "2", "2"), ("megatron-core==0.16.1",), gpus=4),
    "megatron-sequence": Program(
        ("megatron_gpt.py", "2", "1", "sequence"), ("megatron-core==0.16.1",)
    ),
    "torchtitan": Program(
        ("-m", "torchtitan.train", "--job.config_file", "titan/debug.toml"),
        _TITAN,
        before="titan_files.py",
    ),
    # As torchtitan's benchmarks/llama3_h100_202412_torchtitan.md has it: 8 H100 of 96 GB.
    "torchtitan-8b": Program(
        ("-m", "torchtitan.train", "--job.config_file", "titan/8b.toml"),
        _TITAN,
        servers=1,
        gpus=8,
        before="titan_files.py",
        more={
            "fabric": {"kind": "rails", "server": "dgx-h100", "servers": 1},
            "compute": {"memory_bandwidth": "2.4TB/s", "memory": "95GiB"},
        },
        options=("--network", "simulated"),
        peak_gib=82.4,
    ),
}


def missing(python: str, names: Sequence[str]) -> list[str]:
    """Packages of requirements that a Python's environment lacks in that version."""
    import re
    import subprocess

    found = []
    for each in names:
        name, _, version = each.partition("==")
        code = f"import importlib.metadata as m; print(m.version({name!r}))"
        asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        has = asked.stdout.strip()
        if asked.returncode != 0 or (version and re.split(r"[+]", has)[0] != version):
            found.append(each)
    return found
