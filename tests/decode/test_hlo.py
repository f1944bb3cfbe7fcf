"""Collectives that are found in captures get the names of XLA's instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.decode.gloo.collectives_on_wire import WireCollective
from analysis.decode.hlo.module import HloCollective, Repeat, read_modules
from analysis.decode.hlo.names import group_names, hlo_names, steps_of
from collectives.kinds import Kind

_MODULE = """HloModule jit_step, is_scheduled=true

%body.1 (arg: (s32[], f32[8])) -> (s32[], f32[8]) {
  %all-gather.9 = f32[4,2]{1,0} all-gather(%x), channel_id=9, replica_groups=[2,2]<=[2,2]T(0,1), \
dimensions={0}, metadata={op_name="jit(step)/while/body/all_gather" stack_frame_id=1}
}

ENTRY %main.2_spmd (param: f32[2,2]) -> f32[] {
  %first = f32[4,2]{1,0} all-gather(%param), channel_id=1, \
replica_groups=mesh['axis_0'=2,'axis_1'=1,'axis_2'=2] {'axis_0'}, dimensions={0}, \
metadata={op_name="jit(step)/layer0/all_gather"}
  %loop = (s32[], f32[8]) while(%tuple), condition=%cond, body=%body.1, \
backend_config={"known_trip_count":{"n":"2"}}
  %both = (f32[], bf16[3,2]{1,0}) all-reduce(%a, %b), channel_id=2, \
replica_groups=mesh['a'=2,'b'=1,'c'=2], device_ids=([2,2]T(1,0)) {'c'}, \
to_apply=%add, metadata={op_name="jit(step)/(loss:grad)"}
  %get-tuple-element = f32[] get-tuple-element(%both), index=0, \
metadata={op_name="jit(step)/loss/psum"}
  %scatter = f32[2]{0} reduce-scatter(%c), channel_id=3, replica_groups={{0,1,2,3}}, \
dimensions={0}, to_apply=%add, metadata={op_name="jit(step)/grad"}
  %swap = (s8[5]{0}, s8[5]{0}) all-to-all(%d, %e), channel_id=4, replica_groups={{0,1},{2,3}}, \
metadata={op_name="jit(step)/experts"}
  %done = f32[] fusion(%swap), kind=kLoop, calls=%all-reduce-like
  ROOT %shift = f32[7]{0} collective-permute(%f), channel_id=5, \
source_target_pairs={{0,1},{1,2},{3,3}}, metadata={op_name="jit(step)/pipe"}
}
"""
_OPTIONS = "\n".join(
    f"computation_devices {{\n  replica_device_ids: {2048 * rank}\n}}" for rank in (0, 1, 2, 3)
)
_BEFORE = 'xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=2]>}'


@pytest.fixture
def dumped(tmp_path: Path) -> Path:
    stem = "module_0007.jit_step"
    (tmp_path / f"{stem}.cpu_after_optimizations.txt").write_text(_MODULE)
    (tmp_path / f"{stem}.before_optimizations.txt").write_text(_BEFORE)
    (tmp_path / stem).mkdir()
    (tmp_path / stem / "compile_options.textproto").write_text(_OPTIONS)
    return tmp_path


def test_collectives_of_a_module_are_read_in_order(dumped: Path) -> None:
    (module,) = read_modules(dumped)
    rows, columns = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    pairs = ((0, 1), (1, 2), (3, 3))
    gathered = HloCollective(
        "all-gather.9", Kind.ALL_GATHER, 32, rows, "jit(step)/while/body/all_gather"
    )
    assert module.name == "jit_step"
    assert module.sequence == (
        HloCollective("first", Kind.ALL_GATHER, 32, columns, "jit(step)/layer0/all_gather"),
        Repeat((gathered,), 2),
        HloCollective("both:0", Kind.ALL_REDUCE, 4, columns, "jit(step)/loss/psum"),
        HloCollective("both:1", Kind.ALL_REDUCE, 12, columns, "jit(step)/(loss:grad)"),
        HloCollective("scatter", Kind.REDUCE_SCATTER, 32, ((0, 1, 2, 3),), "jit(step)/grad"),
        HloCollective("swap", Kind.ALL_TO_ALL, 10, rows, "jit(step)/experts"),
        HloCollective("shift", Kind.EXCHANGE, 28, pairs, "jit(step)/pipe"),
    )


def test_groups_have_the_names_of_axes(dumped: Path) -> None:
    assert group_names(read_modules(dumped)) == {
        (0, 2): "data@0",
        (1, 3): "data@1",
        (0, 1): "model@0",
        (2, 3): "model@1",
        (0, 1, 2, 3): "data+model",
    }


def test_devices_in_another_order_are_other_ranks(dumped: Path) -> None:
    options = dumped / "module_0007.jit_step" / "compile_options.textproto"
    turned = [f"computation_devices {{ replica_device_ids: {2048 * r} }}" for r in (3, 2, 1, 0)]
    options.write_text("\n".join(turned))
    (module,) = read_modules(dumped)
    first = module.sequence[0]
    assert isinstance(first, HloCollective)
    assert first.groups == ((3, 1), (2, 0))


def _seen(kind: Kind, size: int, ranks: tuple[int, ...], at: int, number: int) -> WireCollective:
    times = dict.fromkeys(ranks, (at, at + 5))
    name = f"{'-'.join(map(str, ranks))}.{number}.{kind}"
    pairs = ((0, 1, size), (1, 2, size)) if kind is Kind.EXCHANGE else ()
    return WireCollective(
        name, kind, str(ranks), None, size, 4, ranks, 0, False, times, exchanged=pairs
    )


def _execution(start: int, number: int) -> list[WireCollective]:
    """The collectives of four ranks in one execution of the module."""
    ops = [
        (Kind.ALL_GATHER, 32, ((0, 2), (1, 3))),
        *[(Kind.ALL_GATHER, 32, ((0, 1), (2, 3)))] * 2,
        (Kind.ALL_REDUCE, 4, ((0, 2), (1, 3))),
        (Kind.ALL_REDUCE, 12, ((0, 2), (1, 3))),
        (Kind.REDUCE_SCATTER, 32, ((0, 1, 2, 3),)),
        (Kind.ALL_TO_ALL, 10, ((0, 1), (2, 3))),
        (Kind.EXCHANGE, 28, ((0, 1, 2),)),
    ]
    return [
        _seen(kind, size, ranks, start + 10 * place, number * len(ops) + place)
        for place, (kind, size, groups) in enumerate(ops)
        for ranks in groups
    ]


def test_executions_are_followed_and_what_is_none_of_them_has_no_name(dumped: Path) -> None:
    modules = read_modules(dumped)
    stray = _seen(Kind.ALL_REDUCE, 99, (0, 1, 2, 3), 150, 99)
    seen = [*_execution(0, 0), stray, *_execution(200, 1), *_execution(300, 2)]
    names = hlo_names(seen, modules)
    assert set(names) == {(each.group, each.id) for each in seen if each is not stray}
    executions = [names[each.group, each.id].execution for each in seen if each is not stray]
    assert executions == sorted(executions)
    assert set(executions) == {0, 1, 2}
    assert [n.collective.name for key, n in names.items() if key[0] == "(0, 2)"] == [
        "first", "both:0", "both:1",
    ] * 3  # fmt: skip
    assert steps_of(names) == "jit_step"


def test_one_execution_is_no_iteration(dumped: Path) -> None:
    assert steps_of(hlo_names(_execution(0, 0), read_modules(dumped))) is None


@pytest.mark.parametrize("text", ["", "ENTRY %main (a: f32[]) -> f32[] {", "\x00\xff", "%x = ("])
def test_a_dump_that_is_none_has_no_modules(tmp_path: Path, text: str) -> None:
    (tmp_path / "module_0000.a.cpu_after_optimizations.txt").write_text(text)
    assert read_modules(tmp_path) == []
