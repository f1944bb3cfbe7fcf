"""AICB's workloads of communication become graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph
from analysis.chakra.sources.read import read_workload
from analysis.chakra.summary import problems
from topologies.spec.compute_section import ComputeSpec

AICB = """[rank0 ~ rank7]
comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw
CommType.all_reduce,CommGroup.dp_group,4,8,init.model_setup,None,None,,None,None,None
CommType.epoch_end,None,None,0,,None,None,,None,None,None
CommType.broadcast,CommGroup.tp_group,2,40,forward_step,None,0,,None,None,None
CommType.computation,None,None,"((4, 8), (8, 16))",forward.q,None,None,,1500.0,None,None
CommType.all_reduce,CommGroup.tp_group,2,1000,forward.q,None,None,,None,None,None
CommType.all_to_all,CommGroup.ep_group,2,64,forward.moe,None,None,,None,None,None
CommType.computation,None,None,"((4, 8, 16), (16, 32))",forward.k,None,None,,None,None,None
CommType.reduce_scatter,CommGroup.ep_dp_group,2,30,step,None,None,,None,None,None
CommType.all_gather,CommGroup.dp_group,4,10,step,None,None,,None,None,None
CommType.all_reduce,CommGroup.tp_group,2,0,step.norm,None,None,,None,None,None
CommType.epoch_end,None,None,0,,None,None,,None,None,None
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "w.csv"
    path.write_text(text)
    return path


def _calls(graph: Graph) -> list[tuple[str, int, tuple[int, ...]]]:
    calls = [node.call for node in graph if isinstance(node, CollectiveNode)]
    return [(call.kind, call.size_bytes, call.ranks) for call in calls]


def test_an_epoch_runs_row_by_row_in_megatrons_groups(tmp_path: Path) -> None:
    """8 ranks: 2 tensor-parallel, 4 data-parallel, of which neighbours have different experts."""
    device = ComputeSpec.model_validate({"device": "h100"})
    read = read_workload(_write(tmp_path, AICB), device)
    assert problems(read.graphs) == [] and len(read.graphs) == 8
    assert _calls(read.graphs[3]) == [
        ("broadcast", 40, (2, 3)),
        ("all_reduce", 1000, (2, 3)),
        ("all_to_all", 64, (1, 3)),
        ("reduce_scatter", 32, (3, 7)),
        ("all_gather", 16, (1, 3, 5, 7)),
    ]
    assert [node.after for node in read.graphs[0]] == [(), *((id,) for id in range(6))]
    timed, priced = (node for node in read.graphs[0] if isinstance(node, ComputeNode))
    assert timed.duration_ns == 1500
    moved = 2 * (32 * 16 + 16 * 32 + 32 * 32)
    assert priced.duration_ns == device.time_ns(2 * 32 * 16 * 32, moved, 4)
    assert "1 rows of 1 epochs before the last one are left out" in read.notes[0]
    assert "1 computations have shapes and no time" in read.notes[1]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("comm_group_size,", "", "line 2: found no column comm_group_size"),
        ("CommType.all_to_all", "CommType.isend", "line 8: comm_type: found isend, allowed"),
        ("ep_group,2,64", "pp_group,2,64", "line 8: comm_group: found pp_group, allowed tp_group"),
        ("tp_group,2,1000", "tp_group,4,1000", "line 7: comm_group_size: found 4, and 2 before"),
        ("ep_dp_group,2,", "ep_dp_group,4,", "line 5: 4 data-parallel ranks are not 2 of experts"),
        ("2,1000,", "2,-1,", "line 7: msg_size: found '-1', expected a whole number"),
        (",1500.0,", ",soon,", "line 6: _elapsed_time: found 'soon'"),
        ('"((4, 8, 16), (16, 32))"', "7", "line 9: msg_size: found '7', expected the shapes"),
        (
            'CommType.computation,None,None,"((4, 8, 1',
            "[ pp_stage1: [rank4] ]\n",
            "line 9: found a",
        ),
    ],
)
def test_what_cannot_be_read_is_told_by_its_line(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert old in AICB
    with pytest.raises(ChakraError) as refused:
        read_workload(_write(tmp_path, AICB.replace(old, new, 1)))
    assert told in str(refused.value)


@given(st.data())
def test_broken_files_are_told_by_their_place(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(AICB.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(40, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("broken") / "w.csv"
    path.write_bytes(bytes(whole[: data.draw(st.integers(len(whole) // 2, len(whole)))]))
    try:
        read_workload(path)
    except ChakraError as error:
        assert str(path) in str(error)
