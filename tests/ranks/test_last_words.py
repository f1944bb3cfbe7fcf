"""The quoted words of a rank that ended badly; needs no guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.ranks.failures.last_words import advice, last_words

_OWN = """\
step 1
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 4, in <module>
[rank0]:     dist.all_reduce(x)
[rank0]:   File "/opt/groundwire/workloads/observer/works.py", line 175, in observed_wait
[rank0]:     return self._awaited(operation, lambda: wait(work, *args, **kwargs))
[rank0]:            ^^^^^^^^^^^^^
[rank0]: RuntimeError: the loss is not a number
"""
_ELASTIC = """\
E0101 00:00:10.61 25 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
============================================================
"""
_STACK = """\
Exception raised from recvBytes at Utils.hpp:672 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80
frame #1: _start + 0x21 (0x5500001081 in python)

"""


def _said(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "000.err").write_text(text)
    return last_words(tmp_path / "000.err").splitlines()


def test_the_ranks_own_exception_comes_before_torchruns_table(tmp_path: Path) -> None:
    said = _said(tmp_path, _OWN + _STACK + _ELASTIC)
    assert said[-1].endswith("RuntimeError: the loss is not a number")
    assert not any("ChildFailedError" in line or "frame #" in line for line in said)


def test_the_observers_frames_are_not_quoted_and_the_users_are(tmp_path: Path) -> None:
    said = "\n".join(_said(tmp_path, _OWN))
    assert "train.py" in said and "dist.all_reduce(x)" in said
    assert "observer" not in said and "_awaited" not in said


def test_what_has_nothing_of_its_own_is_quoted_as_it_is(tmp_path: Path) -> None:
    assert _said(tmp_path, _ELASTIC)[-2] == "train.py FAILED"
    assert last_words(tmp_path / "none.err") == ""


@pytest.mark.parametrize(
    ("words", "helps"),
    [
        ("RuntimeError: Distributed package doesn't have NCCL built in", "the backend gloo"),
        ("RuntimeError: No CUDA GPUs are available", "exec --gpus-per-host 1 --device h100"),
        ("AssertionError: Torch not compiled with CUDA enabled", "device cpu"),
        ("ModuleNotFoundError: No module named 'transformer_engine'", "--transformer-impl local"),
        ("ModuleNotFoundError: No module named 'flash_attn_2_cuda'", "rotary, rms_norm"),
        ("run.sh: 2: /tmp/venv/bin/python: not found", "the virtual kernel's own"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/tmp/data'", "kernel's own"),
        ("[h1:36] [ 3] liboshmem.so.40(mca_memheap_base_reg+0x196)[0x40000fba56]", "-no-pie"),
        ("Read error [10.0.0.4]:65183: Connection reset by peer", "10.0.0.4 is rank 2 on h2"),
    ],
)
def test_what_to_change_is_said(words: str, helps: str) -> None:
    assert helps in advice(words, {"10.0.0.4": "rank 2 on h2"})
    assert advice("RuntimeError: the loss is not a number", {}) == ""
