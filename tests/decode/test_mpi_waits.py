"""The waits of MPI ranks on each other, by the calls that they are in and their messages so far."""

from __future__ import annotations

from dataclasses import replace

from analysis.decode.mpi.messages import kind_of_tag
from analysis.decode.mpi.waits import mpi_hang
from analysis.runs.mpi_messages import MpiMessage

_BARRIER = -16


def _message(
    source: int, destination: int, tag: int, at_ns: int, *, context: int = 0, taken: bool = True
) -> MpiMessage:
    done_ns = at_ns + 5 if taken else None
    kind = kind_of_tag(tag)
    return MpiMessage(
        context, source, destination, tag, kind, 1, 8, at_ns, done_ns, done_ns and done_ns + 1
    )


def test_who_is_in_no_collective_is_waited_for_and_what_it_got_is_told() -> None:
    messages = [_message(0, 1, 7, 100), _message(2, 0, _BARRIER, 110)]
    calls = {0: "MPI_Barrier", 1: "MPI_Recv", 2: "MPI_Barrier"}
    hang = mpi_hang(calls, messages, 3, 1_000_000_000)
    assert [each.waits_for for each in hang.ranks] == [(1,), (), (1,)]
    assert (hang.absent, hang.cycle) == ((), ())
    assert list(hang.lines()) == [
        "ranks 0, 2 wait in MPI_Barrier for rank 1",
        "rank 1 waits in MPI_Recv; the wire does not tell for whom",
        "rank 0 on the wire: last sent 8 B with tag 7 to rank 1, 1.000000 s ago; "
        "last got 8 B of barrier from rank 2, 1.000000 s ago",
        "rank 1 on the wire: last got 8 B with tag 7 from rank 0, 1.000000 s ago",
        "rank 2 on the wire: last sent 8 B of barrier to rank 0, 1.000000 s ago",
    ]


def test_of_two_messages_in_one_packet_the_later_is_the_last() -> None:
    first = _message(0, 1, _BARRIER, 100)
    both = [first, replace(first, tag=7, kind="send_recv", number=2)]
    hang = mpi_hang({}, both, 2, 1_000)
    assert (hang.ranks[0].sent, hang.ranks[1].come) == (both[1], both[1])


def test_long_messages_that_nobody_asks_for_make_a_ring() -> None:
    messages = [_message(rank, (rank + 1) % 3, 7, 100, taken=False) for rank in range(3)]
    hang = mpi_hang(dict.fromkeys(range(3), "MPI_Send"), messages, 3, 1_000)
    assert hang.cycle == (0, 1, 2)
    lines = list(hang.lines())
    assert lines[0] == "rank 0 waits in MPI_Send of 8 B with tag 7 for rank 1"
    assert "cycle: rank 0 -> rank 1 -> rank 2 -> rank 0" in lines
    assert lines[-1].endswith("; rank 0 has not asked for 8 B with tag 7")


def test_a_communicator_has_the_ranks_of_its_messages_and_who_is_in_no_call_is_absent() -> None:
    messages = [
        _message(0, 1, _BARRIER, 1),
        _message(2, 3, _BARRIER, 2, context=4),
        _message(3, 2, _BARRIER, 3, context=4),
    ]
    hang = mpi_hang({0: "MPI_Bcast", 1: "MPI_Bcast", 3: "MPI_Barrier"}, messages, 4, 9)
    assert hang.ranks[3].waits_for == (2,)
    assert hang.ranks[0].waits_for == (2, 3)  # no message says whose broadcast it is
    assert hang.absent == (2,)
    assert "rank 2 did not come: it is in no call of MPI" in list(hang.lines())


def test_a_collective_that_all_have_called_waits_for_nobody() -> None:
    hang = mpi_hang(dict.fromkeys(range(2), "MPI_Bcast"), [], 2, 9)
    lines = list(hang.lines())
    assert lines[0] == "ranks 0, 1 wait in MPI_Bcast, which all have called"
    assert lines[1] == "rank 0 on the wire: nothing"
