"""Other simulators' files: good ones matched, bad ones refused with the place of the mistake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.predict.interface import Predictor, PredictorError, load_predictor
from analysis.predict.models.external_formats import (
    ExternalFormatError,
    read_astra_log,
    read_csv,
    read_flow_completions,
    read_loggopsim,
)
from collectives.call import CollectiveCall
from collectives.schedule.gloo_steps import gloo_steps
from collectives.schedule.schedule import Post
from tests.predict.settings import make_setting

_SETTING = make_setting("flat")
_RING = CollectiveCall("all_reduce", 1_048_576, tuple(range(4)), name="i0.all_reduce.0")

_ASTRA = """\
[2026-03-01 10:00:00.000] [workload] [debug] issue,sys->id=0, tick=10,node->id=1,node->name=i0.all_reduce.0,node->type=7
[2026-03-01 10:00:00.000] [workload] [debug] issue,sys->id=1, tick=25,node->id=1,node->name=i0.all_reduce.0,node->type=7
[2026-03-01 10:00:00.000] [workload] [debug] callback,sys->id=0, tick=110,node->id=1,node->name=i0.all_reduce.0,node->type=7
[2026-03-01 10:00:00.000] [workload] [debug] callback,sys->id=1, tick=125,node->id=1,node->name=i0.all_reduce.0,node->type=7
[2026-03-01 10:00:00.000] [workload] [info] sys[0] finished, 323560 cycles, exposed communication 323560 cycles.
[2026-03-01 10:00:00.000] [workload] [info] sys[1] finished, 323570 cycles, exposed communication 323000 cycles.
"""  # noqa: E501


def _external(path: Path, format_: str, **parameters: object) -> Predictor:
    return load_predictor("external", {"format": format_, "path": path, **parameters})


def test_astra_sims_slowest_rank_is_the_workloads_time(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_text("".join(line for line in _ASTRA.splitlines(True) if "finished" in line))
    predictor = _external(log, "astra-sim")
    assert predictor.predict(_SETTING, _RING) == 323570
    # It is about one workload; asking for another collective would give the same time again.
    with pytest.raises(PredictorError, match=r"taken for all_reduce of 1048576 bytes"):
        predictor.predict(_SETTING, replace(_RING, size_bytes=8))
    named = _external(log, "astra-sim", kind="all_gather", size_bytes=8)
    with pytest.raises(PredictorError, match="taken for all_gather of 8 bytes"):
        named.predict(_SETTING, _RING)


def test_an_exported_nodes_name_is_its_collectives_in_any_iteration(tmp_path: Path) -> None:
    """A run calls it i1.gradient.0; `trace export` writes one iteration, so the log lacks i1."""
    table = tmp_path / "t.csv"
    table.write_text("name,duration_us\ngradient.0,5\ni1.gradient.1,7\nradient.2,9\n")
    predictor = _external(table, "csv")
    for iteration, number, expected in ((0, 0, 5000), (12, 0, 5000), (1, 1, 7000)):
        call = replace(_RING, name=f"i{iteration}.gradient.{number}")
        assert predictor.predict(_SETTING, call) == expected
    with pytest.raises(PredictorError, match="no timing"):
        predictor.predict(_SETTING, replace(_RING, name="i1.gradient.2"))


def test_astra_sims_debug_log_has_a_time_for_every_node(tmp_path: Path) -> None:
    log = tmp_path / "debug.log"
    log.write_text(_ASTRA)
    assert _external(log, "astra-sim").predict(_SETTING, _RING) == 125 - 25


def test_flow_completion_times_are_matched_by_what_they_move(tmp_path: Path) -> None:
    """Two bursts of HPCC's format: Gloo's own all-reduce, later an all-to-all."""
    lines, start = [], 1000
    for call, step_ns in ((_RING, 500), (CollectiveCall("all_to_all", 4096, tuple(range(4))), 700)):
        for step in gloo_steps(call.shape):
            if isinstance(step, Post):
                lines += [
                    f"0b00{s:02x}01 0b00{d:02x}01 10000 100 {size} {start} {step_ns} {step_ns}"
                    for s, d, size in zip(
                        step.source, step.destination, step.size_bytes, strict=True
                    )
                ]
                start += step_ns
        start += 100_000
    file = tmp_path / "fct.txt"
    file.write_text("\n".join(lines))
    predictor = _external(file, "ns3-fct")
    rounds = sum(isinstance(step, Post) for step in gloo_steps(_RING.shape))
    assert predictor.predict(_SETTING, _RING) == rounds * 500
    exchange = CollectiveCall("all_to_all", 4096, tuple(range(4)))
    assert predictor.predict(_SETTING, exchange) == 3 * 700
    with pytest.raises(PredictorError, match="no timing of broadcast of 7 bytes over 4 ranks"):
        predictor.predict(_SETTING, CollectiveCall("broadcast", 7, tuple(range(4))))


def test_loggopsims_output_with_and_without_a_list_of_hosts(tmp_path: Path) -> None:
    few, many = tmp_path / "few.txt", tmp_path / "many.txt"
    few.write_text("PERFORMANCE: Processes: 2 \t Events: 9\nTimes: \nHost 0: 1200\nHost 1: 1250\n")
    many.write_text("Maximum finishing time at host 7: 99100 (9.91e-05 s)\n")
    assert _external(few, "loggopsim").predict(_SETTING, _RING) == 1250
    assert _external(many, "loggopsim").predict(_SETTING, _RING) == 99100


def test_a_table_is_matched_by_name_or_by_kind_size_and_ranks(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "kind,size_bytes,ranks,name,duration_us\n"
        "all_reduce,1048576,4,,1.5\n"
        "all_reduce,1048576,8,,9\n"
        "broadcast,64,,,2\n"
        ",,,i7.barrier.0,0.25\n"
    )
    predictor = _external(table, "csv")
    assert predictor.predict(_SETTING, _RING) == 1500
    assert predictor.predict(_SETTING, CollectiveCall("broadcast", 64, (0, 1))) == 2000
    named = CollectiveCall("barrier", 0, (0, 1), name="i7.barrier.0")
    assert predictor.predict(_SETTING, named) == 250


@pytest.mark.parametrize(
    ("format_", "text", "message"),
    [
        ("astra-sim", "sys[0] started\n", "did the simulation finish"),
        ("ns3-fct", "", "no flows"),
        ("ns3-fct", "0b000101 0b000201 1 2 3\n", "line 1: found 5 fields"),
        ("ns3-fct", "0b000101 host 1 2 3 4 5\n", "line 1: addresses must be hexadecimal"),
        ("ns3-fct", "0b000101 0b000201 1 2 3 4 -5\n", "line 1: size and fct"),
        ("loggopsim", "Usage: LogGOPSim\n", "did the simulation finish"),
        ("csv", "kind,size_bytes\nall_reduce,1\n", "line 1: no duration column"),
        ("csv", "kind,colour,duration_ns\n", "line 1: unknown column 'colour'"),
        ("csv", "kind,duration_ns\nall_reduce,soon\n", "line 2: not a number"),
        ("csv", "kind,duration_ns\nallreduce,5\n", "line 2: kind 'allreduce', allowed all_reduce"),
        ("csv", "kind,duration_ns\nall_reduce,-5\n", "line 2: duration '-5'"),
        ("csv", "kind,duration_ns\n", "no rows"),
    ],
)
def test_files_that_are_something_else_are_refused(
    tmp_path: Path, format_: str, text: str, message: str
) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(PredictorError, match=message):
        _external(file, format_)


def test_missing_files_and_unknown_formats_are_named(tmp_path: Path) -> None:
    with pytest.raises(PredictorError, match=r"absent: No such file"):
        _external(tmp_path / "absent", "csv")
    with pytest.raises(PredictorError, match="format: found 'omnet', allowed astra-sim, ns3-fct"):
        _external(tmp_path, "omnet")
    with pytest.raises(PredictorError, match="not a text file"):
        (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
        _external(tmp_path / "binary", "csv")


@given(st.text(max_size=300))
def test_no_text_breaks_a_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("fuzz") / "file"
    file.write_text(text, encoding="utf-8", errors="replace")
    for read in (read_astra_log, read_flow_completions, read_loggopsim, read_csv):
        try:
            timings = read(file)
        except ExternalFormatError:
            continue
        assert timings and all(t.duration_ns >= 0 for t in timings)
