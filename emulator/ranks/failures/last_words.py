"""The quotation of a process that ended badly: its own words, without what launchers and C++ add
behind them, and what to change where that is known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_LINES = 12
_OF_TORCHRUN = re.compile(r"torch/distributed/elastic/.*(failed \(exitcode|closing signal)")
"""How torchrun begins to tell of a rank that failed: its own traceback follows, and a table
(torch/distributed/elastic/multiprocessing/api.py)."""
_OF_C_PLUS_PLUS = re.compile(r"(\[rank\d+\]: )?(frame #\d+: |Exception raised from )")
"""A stack of C++, which torch adds to its errors (c10/util/Backtrace.cpp)."""
_NO_IPV6 = re.compile(r".*socket\.cpp:\d+\].*\(errno: 97 ")
"""Torch's store, which tries an address of IPv6 first and then goes on."""
_OBSERVER = "/workloads/observer/"

_VIRTUAL = "groundwire exec --gpus-per-host 1 --device h100 gives each a virtual one"
_ADVICE = (
    (
        r"doesn't have NCCL built in|ProcessGroupNCCL is only supported with GPUs",
        f"hosts have no GPUs, and so no NCCL: {_VIRTUAL}; or use the backend gloo (torchrun and "
        "init_process_group() without a backend take it by themselves) and tensors on the CPU",
    ),
    (
        r"not compiled with CUDA enabled|[Nn]o NVIDIA driver|No CUDA GPUs are available"
        r"|no CUDA-capable device",
        f"hosts have no GPUs: {_VIRTUAL}; or use device cpu where torch.cuda.is_available() says "
        "no, and the backend gloo",
    ),
    (
        r"No module named '(transformer_engine|transformer_engine_torch)",
        "Transformer Engine's layers are CUDA code, which a virtual GPU has not: use the "
        "framework's own of torch (Megatron: --transformer-impl local, or its local layer spec)",
    ),
    (
        r"No module named '(flash_attn_interface|flash_attn_2_cuda|flash_attn_3|flash_attn\.)",
        "of flash-attention's package a virtual GPU has flash_attn_func and its kin, rotary, "
        "rms_norm, cross_entropy and bert_padding; torch's scaled_dot_product_attention is the "
        "same kernel",
    ),
    (
        r"(?<![\w/])/(tmp|run|dev/shm)/\S+(: |'.*)(not found|No such file)|"
        r"No such file or directory: '/(tmp|run|dev/shm)/",
        "/tmp, /run and /dev/shm are the virtual kernel's own: a program sees this machine's files "
        "there only where a word of the command names them",
    ),
    (
        r"mca_memheap_base_reg|_load_segments\(\) too many segments",
        "OpenSHMEM takes all that is mapped below a program for the program's own data, and has "
        "room for 32 of these; in the virtual kernel libraries lie there: link it by oshcc -no-pie",
    ),
)


def last_words(path: Path) -> str:
    """The last lines of a process's stderr that are its own; empty where it has none."""
    if not path.exists():
        return ""
    lines = path.read_text(errors="replace").splitlines()
    told = next((i for i, line in enumerate(lines) if _OF_TORCHRUN.search(line)), None)
    of_others = (_OF_C_PLUS_PLUS, _NO_IPV6)
    own = [
        line
        for line in _without_observer(lines[:told])
        if not any(pattern.match(line) for pattern in of_others)
    ]
    if not any(line.strip() for line in own):
        own = lines
    while own and not own[-1].strip():
        own.pop()
    return "\n".join(own[-_LINES:])


def _without_observer(lines: list[str]) -> list[str]:
    """A traceback without the frames that lead through the observer."""
    found, hidden = [], False
    for line in lines:
        text = re.sub(r"^\[rank\d+\]: ", "", line)
        if text.startswith("  File "):
            hidden = _OBSERVER in text
        elif not text.startswith("    "):
            hidden = False
        if not hidden:
            found.append(line)
    return found


def advice(words: str, hosts: Mapping[str, str]) -> str:
    """Advice to whoever reads these words; empty where nothing is known. `hosts` has who runs
    at an address."""
    found = [said for pattern, said in _ADVICE if re.search(pattern, words)]
    addresses = dict.fromkeys(re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", words))
    found += [f"{each} is {hosts[each]}" for each in addresses if each in hosts]
    return "".join(f"\n{each}" for each in found)
