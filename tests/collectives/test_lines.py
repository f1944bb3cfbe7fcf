"""Flags among the data of NCCL's LL and LL128: how long messages are, and what is in them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.chunking import Chunking
from collectives.kinds import Kind, Shape
from collectives.nccl.communicator import Communicator
from collectives.nccl.division import LINES
from collectives.nccl.environment import Environment
from collectives.nccl.schedule import nccl_schedule
from collectives.nccl.tuner import Tuner
from collectives.schedule.lines import PLAIN, Lines
from tests.collectives.test_nccl import single
from workloads.execution.payload.tensors import OWN_TENSORS, tensors_of
from workloads.execution.programs.flags import in_lines, out_of_lines


@pytest.mark.parametrize(
    ("protocol", "data", "sent"),
    [
        # A line of LL is two words of four bytes, each with a flag; LL128 goes by 16 lines.
        *(("LL", 1, 16), ("LL", 8, 16), ("LL", 9, 32), ("LL", 4096, 8192)),
        *(("LL128", 1, 2048), ("LL128", 1920, 2048), ("LL128", 1921, 4096)),
        *(("Simple", 1, 1), ("Simple", 4096, 4096)),
    ],
)
def test_length_of_messages(protocol: str, data: int, sent: int) -> None:
    assert LINES[protocol].wire_bytes(data) == sent


@given(
    lines=st.sampled_from([LINES["LL"], LINES["LL128"], Lines(3, 1, 2)]),
    count=st.integers(1, 3000),
    dtype=st.sampled_from([torch.uint8, torch.bfloat16, torch.float32, torch.float64]),
)
@settings(max_examples=60, deadline=None)
def test_data_comes_out_as_it_went_in(lines: Lines, count: int, dtype: torch.dtype) -> None:
    data = (torch.arange(count) % 101).to(dtype)
    message = in_lines(data, data, lines, OWN_TENSORS)
    assert message.numel() == lines.wire_bytes(data.numel() * data.element_size())
    found = torch.zeros_like(data)
    out_of_lines(message, found, lines, OWN_TENSORS)
    assert torch.equal(found, data)
    # Every flag is set, also after data that is not there.
    flags = message.view(-1, lines.line_bytes)[:, lines.data_bytes :]
    assert bool((flags == 1).all())


def test_payload_for_its_time_is_as_long() -> None:
    tensors = tensors_of("timing")
    like = tensors.empty(1000, torch.float32)
    assert in_lines(like, like, LINES["LL"], tensors).numel() == 8000


@pytest.mark.parametrize(("protocol", "times"), [("LL", 2), ("LL128", 16 / 15), ("Simple", 1)])
@pytest.mark.parametrize("kind", [Kind.ALL_REDUCE, Kind.ALL_GATHER])
def test_all_readers_see_the_same_lengths(kind: Kind, protocol: str, times: float) -> None:
    one = single(4)
    environment = Environment({"NCCL_ALGO": "Ring", "NCCL_PROTO": protocol})
    comm = Communicator(one.servers, one.ranks, environment)
    shape = Shape(kind, 1920 * 1024, 4, 4)
    schedule = nccl_schedule(Tuner(comm), shape, Chunking())
    sent = schedule.chunks[0].program.sent_bytes(shape.size_bytes, 4)
    numbered = [message.size_bytes for message in schedule.numbered_messages()]
    # Chunks need not be whole lines: what is left over of each is sent as well.
    assert sum(sent) * times <= sum(numbered) <= sum(sent) * times * 1.05
    assert sorted(schedule.alone(shape).size_bytes) == sorted(numbered)
    posted = [int(size) for post in schedule.posts(shape) for size in post.size_bytes]
    assert sorted(posted) == sorted(numbered)
    assert (schedule.lines == PLAIN) == (protocol == "Simple")
