"""PyTorch's words for what NCCL does, as calls: of profiles, of execution traces.

Source: pytorch/pytorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (the names that
RECORD_PARAM_COMMS gives) and torch/csrc/profiler/util.cpp (saveNcclMeta: the keys of a profile).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.chakra.sources.recorded import Message
from collectives.call import CollectiveCall, CollectiveError
from collectives.kinds import Kind

ELEMENT_BYTES: Mapping[str, int] = {
    "double": 8, "long": 8, "int64": 8, "float64": 8, "complexfloat": 8, "complexdouble": 16,
    "float": 4, "int": 4, "float32": 4, "int32": 4, "uint32": 4,
    "half": 2, "bfloat16": 2, "float16": 2, "short": 2, "c10::half": 2, "c10::bfloat16": 2,
    "byte": 1, "char": 1, "bool": 1, "uint8": 1, "int8": 1, "unsigned char": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
"""Bytes of an element, by the name of its type in lower case."""

_KINDS: dict[str, Kind] = {
    "allreduce": Kind.ALL_REDUCE,
    "all_reduce": Kind.ALL_REDUCE,
    "allreduce_coalesced": Kind.ALL_REDUCE,
    "all_gather": Kind.ALL_GATHER,
    "allgather": Kind.ALL_GATHER,
    "_allgather_base": Kind.ALL_GATHER,
    "_all_gather_base": Kind.ALL_GATHER,
    "all_gather_single": Kind.ALL_GATHER,
    "all_gather_into_tensor_coalesced": Kind.ALL_GATHER,
    "allgather_into_tensor_coalesced": Kind.ALL_GATHER,
    "reduce_scatter": Kind.REDUCE_SCATTER,
    "_reduce_scatter_base": Kind.REDUCE_SCATTER,
    "reduce_scatter_single": Kind.REDUCE_SCATTER,
    "reduce_scatter_tensor_coalesced": Kind.REDUCE_SCATTER,
    "all_to_all": Kind.ALL_TO_ALL,
    "all_to_allv": Kind.ALL_TO_ALL,
    "all_to_all_single": Kind.ALL_TO_ALL,
    "alltoall": Kind.ALL_TO_ALL,
    "broadcast": Kind.BROADCAST,
    "_broadcast_oop": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
    "_reduce_oop": Kind.REDUCE,
    "gather": Kind.GATHER,
    "scatter": Kind.SCATTER,
    "barrier": Kind.BARRIER,
}
_MESSAGES = ("send", "recv")
_ROOTED = (Kind.BROADCAST, Kind.REDUCE, Kind.GATHER, Kind.SCATTER)


@dataclass(frozen=True, slots=True)
class NcclCall:
    """A call as PyTorch records it: elements that a rank brings and gets, the root or the peer
    where it has one (a position in the group), and the group's ranks."""

    name: str
    input_elements: int
    output_elements: int
    element_bytes: int
    ranks: tuple[int, ...]
    root: int = 0
    peer: int | None = None
    uneven: bool = False

    def part(self, rank: int) -> CollectiveCall | Message:
        """It as rank `rank` of the world does it. Raises ValueError."""
        if self.name in _MESSAGES:
            if self.peer is None:
                raise ValueError(f"a {self.name} does not say to or from whom")
            elements = self.output_elements if self.name == "recv" else self.input_elements
            elements = elements or self.input_elements or self.output_elements
            return Message(self.name == "send", self.peer, elements * self.element_bytes)
        kind = _KINDS[self.name]
        size = len(self.ranks)
        if rank not in self.ranks:
            raise ValueError(f"rank {rank} is not in its group {list(self.ranks)}")
        if kind is Kind.ALL_GATHER or kind is Kind.GATHER:
            elements = max(self.output_elements, self.input_elements * size)
        elif kind is Kind.REDUCE_SCATTER or kind is Kind.SCATTER:
            elements = max(self.input_elements, self.output_elements * size)
        elif kind is Kind.BARRIER:
            elements = 0
        else:
            elements = max(self.input_elements, self.output_elements)
        try:
            return CollectiveCall(
                kind,
                elements * self.element_bytes,
                self.ranks,
                self.element_bytes,
                self.root if kind in _ROOTED else 0,
            )
        except CollectiveError as error:
            raise ValueError(str(error)) from None


def communicates(name: str) -> bool:
    """Whether a call of this name sends something (PyTorch records waits and groupings alike)."""
    return name in _KINDS or name in _MESSAGES


def is_message(name: str) -> bool:
    """Whether it is a send or a receive."""
    return name in _MESSAGES


def peer_of(position: int, ranks: Sequence[int]) -> int:
    """The rank of the world at a position in a group. Raises ValueError."""
    if not 0 <= position < len(ranks):
        raise ValueError(f"peer {position} is not in a group of {len(ranks)}")
    return ranks[position]
