"""Does the collectives of a rank of OpenMPI that `collectives.c` asks it for.

It runs beside the rank, in its host, as `rank_end.py HOSTS`, as a rank of torch.distributed whose
backend is groundwire: the file HOSTS has the hosts of the ranks and their interfaces. It reads
questions from descriptor 0, answers by 3, and has the data in the memory of 4.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

_ANSWERS, _MEMORY = 3, 4
_OK = b"ok\n"


class Question(NamedTuple):
    """A collective. `members` are ranks of the run, in the group's order; `root` is one of them."""

    kind: str
    size_bytes: int
    dtype: str
    op: str
    root: int
    members: tuple[int, ...]

    @classmethod
    def read(cls, line: str) -> Question:
        """A line of `collectives.c`."""
        kind, size, dtype, op, root, members = line.split()
        return cls(kind, int(size), dtype, op, int(root), tuple(map(int, members.split(","))))


class Data:
    """The memory of this process and the rank."""

    def __init__(self) -> None:
        self._mapped: mmap.mmap | None = None

    def tensor(self, size_bytes: int, dtype: str) -> Any:
        """Its first bytes, as a tensor of one dimension."""
        import torch

        if self._mapped is None or len(self._mapped) < size_bytes:
            self._mapped = mmap.mmap(_MEMORY, os.fstat(_MEMORY).st_size)
        data = torch.frombuffer(self._mapped, dtype=torch.uint8, count=size_bytes)
        return data.view(getattr(torch, dtype))


class Groups:
    """The process groups of communicators, made when one first has a collective."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], Any] = {}

    def of(self, members: tuple[int, ...]) -> Any:
        """The group of these ranks; of their order it knows nothing. Raises RuntimeError and
        others: switches that refuse it."""
        import torch.distributed as dist

        ranks = tuple(sorted(members))
        if ranks == tuple(range(dist.get_world_size())):
            return dist.group.WORLD
        if ranks not in self._made:
            # The other ranks of the run know nothing of it.
            self._made[ranks] = dist.new_group(list(ranks), use_local_synchronization=True)
        return self._made[ranks]


def run(question: Question, groups: Groups, data: Data) -> None:
    """Do a collective. Raises RuntimeError and others: the switches refused it, or it failed."""
    import torch.distributed as dist

    group = groups.of(question.members)
    if question.kind == "barrier":
        dist.barrier(group)
        return
    tensor = data.tensor(question.size_bytes, question.dtype)
    if question.kind == "broadcast":
        dist.broadcast(tensor, question.root, group)
        return
    op = getattr(dist.ReduceOp, question.op.upper())
    if question.kind == "reduce":
        dist.reduce(tensor, question.root, op, group)
    else:
        dist.all_reduce(tensor, op, group)


def enter(hosts_file: str) -> None:
    """Take the place of the rank. Raises ValueError where MPI's ranks are not on the hosts that the
    spec has them on, for which trees of switches are computed."""
    rank, here = int(os.environ["RANK"]), os.uname().nodename
    table = json.loads(Path(hosts_file).read_text())
    there = table["ranks"][rank] if rank < len(table["ranks"]) else "none"
    world = int(os.environ.get("OMPI_COMM_WORLD_SIZE", len(table["ranks"])))
    if world != len(table["ranks"]):
        raise ValueError(
            f"mpirun -n: found {world} ranks, expected {len(table['ranks'])}, as the spec has, as "
            "switches do their collectives"
        )
    if here != there:
        raise ValueError(
            f"mpirun: rank {rank} is on {here}, and the spec has it on {there}; expected the order "
            "of the host file (no --map-by), as trees of switches follow the spec"
        )
    os.environ["GLOO_SOCKET_IFNAME"] = table["hosts"][here]["interface"]


def main() -> int:
    """Returns 1 where a collective, or the beginning, failed; standard error says why."""
    try:
        enter(sys.argv[1])
        import torch.distributed as dist

        dist.init_process_group("gloo")
        groups, data = Groups(), Data()
        os.write(_ANSWERS, _OK)
        for line in sys.stdin:
            run(Question.read(line), groups, data)
            os.write(_ANSWERS, _OK)
        dist.destroy_process_group()
    except Exception as error:
        print(f"groundwire: rank {os.environ.get('RANK')}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
