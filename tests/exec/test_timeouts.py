"""Timeouts of half an hour end in virtual time, by the program's own words, and say who waited."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exec.programs import FABRIC, execute

_BEGIN = """
import os, time, datetime, torch, torch.distributed as dist
rank, patience = int(os.environ["RANK"]), datetime.timedelta(seconds=1800)
begin = lambda backend, **more: dist.init_process_group(backend, timeout=patience, **more)
"""
_MONITORED = """
begin("gloo")
if rank == 2:
    time.sleep(5000)
dist.monitored_barrier(timeout=patience)
"""
_MEETING = """
if rank == 2:
    time.sleep(5000)
begin("gloo")
"""
_COLLECTIVE = """
begin("gloo")
if rank == 2:
    time.sleep(5000)
dist.all_reduce(torch.ones(1000))
"""
_GPU = """
begin("nccl")
if rank == 2:
    time.sleep(5000)
dist.all_reduce(torch.ones(1000, device="cuda"))
torch.cuda.synchronize()
"""
_GPU_TWICE = """
begin("nccl")
try:
    dist.all_reduce(torch.ones(1000, device="cuda"), async_op=True)
    if rank == 2:
        time.sleep(5000)
    dist.all_reduce(torch.ones(1000, device="cuda"))
except dist.DistBackendError as error:
    try:
        dist.all_reduce(torch.ones(1000, device="cuda"))
    except dist.DistBackendError as again:
        assert f"NCCL communicator was aborted on rank {rank}" in str(again)
        raise error from again
"""
_GPU_GOES_ON = """
begin("nccl")
dist.all_reduce(torch.ones(1000, device="cuda"), async_op=True)
if rank == 2:
    time.sleep(5000)
dist.all_reduce(torch.ones(1000, device="cuda"), async_op=True)
began = time.monotonic()
torch.cuda.synchronize()
assert rank == 2 or 1800 <= time.monotonic() - began < 1801, time.monotonic() - began
dist.all_reduce(torch.ones(1000, device="cuda"))
"""
_GPU_IS_ASKED = """
begin("nccl")
dist.all_reduce(torch.ones(1000, device="cuda"), async_op=True)
if rank == 2:
    time.sleep(5000)
work = dist.all_reduce(torch.ones(1000, device="cuda"), async_op=True)
began = time.monotonic()
try:
    work.wait(datetime.timedelta(seconds=60))
finally:
    assert rank == 2 or 60 <= time.monotonic() - began < 61, time.monotonic() - began
"""
_LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("script", "options", "words", "waited"),
    [
        pytest.param(
            _MONITORED,
            (),
            "Rank 2 failed to pass monitoredBarrier in 1800000 ms",
            "wait in monitored_barrier (number 0 of group default) for rank 2, for 1,8",
            id="monitored_barrier",
        ),
        pytest.param(
            _MEETING,
            (),
            "wait timeout after 1800000ms",
            "wait in init_process_group (number 0 of group start) for rank 2, for 1,8",
            id="init_process_group",
            marks=_LONG,
        ),
        pytest.param(
            _COLLECTIVE,
            (),
            "Timed out waiting 1800000ms",
            "wait in all_reduce of 4,000 B (number 0 of group default) for rank 2, for 1,8",
            id="gloo",
            marks=_LONG,
        ),
        pytest.param(
            _GPU,
            ("--gpus-per-host", "1"),
            "Process group watchdog thread terminated with exception: [Rank 0] Watchdog caught "
            "collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1000, "
            "NumelOut=1000, Timeout(ms)=1800000) ran for 18000",
            "wait in all_reduce of 4,000 B (number 0 of group default) for rank 2, for 1,8",
            id="nccl",
            marks=_LONG,
        ),
        pytest.param(
            _GPU_TWICE,
            ("--gpus-per-host", "1", "--env", "TORCH_NCCL_BLOCKING_WAIT=1"),
            "DistBackendError: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL("
            "SeqNum=2, OpType=ALLREDUCE",
            "rank 2 did not come, after all_reduce of 4,000 B (number 0 of group default)",
            id="nccl-blocking",
            marks=_LONG,
        ),
        pytest.param(
            _GPU_GOES_ON,
            ("--gpus-per-host", "1", "--env", "TORCH_NCCL_ASYNC_ERROR_HANDLING=2"),
            "DistBackendError: NCCL communicator was aborted on rank",
            "exited with status 1",
            id="nccl-goes-on",
            marks=_LONG,
        ),
        pytest.param(
            _GPU_IS_ASKED,
            ("--gpus-per-host", "1"),
            "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, Timeout(ms)=60000) "
            "ran for 6000",
            "rank 2 did not come, after all_reduce of 4,000 B (number 0 of group default)",
            id="nccl-is-asked",
            marks=_LONG,
        ),
    ],
)
def test_half_an_hour_ends_by_the_words_of_the_program(
    tmp_path: Path, script: str, options: tuple[str, ...], words: str, waited: str
) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "script.py").write_text(_BEGIN + script)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--tee", "all", "--ranks", "3", *options,
        "--", "python", "script.py",
    )  # fmt: skip
    assert done.returncode == 1
    assert words in done.stderr
    assert waited in done.stderr


@pytest.mark.long
def test_the_watchdog_of_nccl_ends_ranks_of_which_one_has_died(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(
        f"{FABRIC}faults: [{{kind: kill, rank: 1, operation: 1}}]\n"
    )
    (tmp_path / "script.py").write_text(_BEGIN + _GPU_TWICE)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--ranks", "3", "--gpus-per-host", "1",
        "--", "python", "script.py",
    )  # fmt: skip
    assert done.returncode == 1
    assert "was killed by SIGABRT" in done.stderr
    assert "ncclRemoteError: A call failed possibly due to a network error" in done.stderr


_LOOKS = """
import glob, os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1000))
time.sleep(600)
for task in glob.glob("/proc/self/task/*"):
    if open(f"{task}/comm").read() == "gloo_tcp_loop\\n":
        status = open(f"{task}/status").read()
        print("looks", status.partition("voluntary_ctxt_switches:")[2].split()[0])
dist.all_reduce(torch.ones(1000))
dist.destroy_process_group()
print("ended")
"""


def test_threads_of_gloo_look_whether_they_are_to_end_only_when_somebody_has_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "script.py").write_text(_LOOKS)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--ranks", "2", "--", "python", "script.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    looks = [int(line.split()[-1]) for line in said.splitlines() if "looks" in line]
    assert looks  # each is a 10 ms: 60,000 in ten minutes
    assert max(looks) < 1000
    assert "ended" in said  # it has been told so meanwhile, and has looked
