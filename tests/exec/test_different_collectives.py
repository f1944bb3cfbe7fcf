"""Ranks that call different collectives are told so, with both calls."""

from __future__ import annotations

from pathlib import Path

from emulator.ranks.failures.different_collectives import different_collectives
from tests.exec.programs import FABRIC, execute
from workloads.observer import POSTS

_BEGIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
"""
_OVER = " over 5 0 4"
"""The rest of a line: the state of the call, since when, its tag, and when it was posted."""


def _posted(ranks: Path, *calls: str) -> str:
    (ranks / POSTS).mkdir(parents=True, exist_ok=True)
    for rank, lines in enumerate(calls):
        (ranks / POSTS / str(rank)).write_text(lines)
    return different_collectives(ranks)


def test_the_first_difference_is_named_with_who_called_what(tmp_path: Path) -> None:
    reduces, casts = f"default all_reduce 16 0{_OVER}\n", f"default broadcast 16 2{_OVER}\n"
    said = _posted(
        tmp_path,
        f"0 {reduces}1 {reduces}2 {casts}",
        f"0 {reduces}1 {casts}2 {reduces}",
        f"0 {reduces}1 {casts}",
    )
    assert said.strip() == (
        "Ranks have called different collectives: as number 1 of group default, "
        "rank 0 called all_reduce of 16 B; ranks 1, 2 called broadcast of 16 B with root 2"
    )


def test_what_fits_together_is_no_difference(tmp_path: Path) -> None:
    """Sizes of unequal parts differ by right; who is behind has not called yet; groups are apart,
    and a line that a killed rank has left half written says nothing."""
    assert not _posted(
        tmp_path,
        f"0 default all_to_all -1 0{_OVER}\n1 default barrier 0 0{_OVER}\n",
        f"0 default all_to_all 4096 0{_OVER}\n",
        f"0 group.3 all_reduce 16 0{_OVER}\n1 defau",
    )


def test_a_rank_that_leaves_one_out_and_ends_is_named(tmp_path: Path) -> None:
    """The program fails elsewhere, at a rank that loses its connection."""
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "skips.py").write_text(
        _BEGIN
        + "for _ in range(2 if rank == 2 else 3):\n"
        + "    dist.all_reduce(torch.ones(1000))\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "torchrun", "skips.py"
    )
    assert done.returncode == 1
    assert "wait in all_reduce of 4,000 B (number 3 of group default) for rank 2" in done.stderr
    reduced = "all_reduce of 4,000 B (number 2 of group default)"
    assert f"rank 2 did not come, after {reduced}" in done.stderr


def test_a_run_that_fails_by_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "sizes.py").write_text(
        _BEGIN + "dist.all_reduce(torch.ones(1000 if rank == 0 else 500))\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "python", "sizes.py"
    )
    assert done.returncode == 1
    assert "as number 1 of group default, rank 0 called all_reduce of 4,000 B; " in done.stderr
    assert "ranks 1, 2 called all_reduce of 2,000 B" in done.stderr
    assert not (tmp_path / "run" / "ranks" / POSTS).exists()
