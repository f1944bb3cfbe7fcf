"""ASTRA-sim 1's workload files: read as documented, and refused with file, line, found, allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.layer_file import LayerFileError, parse_layers
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.spec import SpecError, load_spec, parse_spec

ROW = "fc\t-1\t7\tALLTOALL\t4096\t5 NONE 0 3 ALLREDUCE 8192 11"
FILE = f"HYBRID_DLRM\t1\t\t\n3\t\t\n{ROW}\n{ROW}\n{ROW}\n"
SPEC = """
name: table
fabric: {kind: flat, hosts: 4}
workload: {kind: layers, ranks: 4, path: table.txt}
"""


def test_a_file_says_parallelism_and_layers(tmp_path: Path) -> None:
    (tmp_path / "table.txt").write_text(FILE)
    (tmp_path / "spec.yaml").write_text(SPEC)
    spec = load_spec(tmp_path / "spec.yaml")
    workload = spec.workload
    assert isinstance(workload, LayersWorkload)
    assert (workload.parallelism, workload.last_bottom_layer) == ("hybrid-dlrm", 1)
    assert len(workload.layers) == 3
    layer = workload.layers[2]
    assert (layer.name, layer.update_ns) == ("fc", 11)
    assert layer.forward.compute_ns == 7
    assert (layer.forward.collective, layer.forward.size_bytes) == ("all_to_all", 4096)
    assert layer.input_gradient.compute_ns == 5
    assert layer.input_gradient.collective is None
    assert (layer.weight_gradient.collective, layer.weight_gradient.size_bytes) == (
        "all_reduce",
        8192,
    )
    # A resolved spec has the layers and needs no file.
    (tmp_path / "table.txt").unlink()
    assert parse_spec(spec.to_yaml()) == spec
    assert workload.path is None


def test_a_file_without_its_first_lines_needs_a_parallelism(tmp_path: Path) -> None:
    (tmp_path / "table.txt").write_text(f"{ROW}\n\n{ROW}\n")
    (tmp_path / "spec.yaml").write_text(SPEC)
    with pytest.raises(SpecError, match=r"workload.parallelism: .*this key is required"):
        load_spec(tmp_path / "spec.yaml")
    (tmp_path / "spec.yaml").write_text(SPEC.replace("path:", "parallelism: data, path:"))
    assert load_spec(tmp_path / "spec.yaml").workload.kind == "layers"


@pytest.mark.parametrize(
    ("text", "place", "found", "allowed"),
    [
        ("", "t", "nothing", "a line for each layer"),
        ("PARALLEL\n1\n" + ROW, "t, line 1", "PARALLEL", "HYBRID_MODEL_DATA"),
        ("HYBRID_DLRM\n1\n" + ROW, "t, line 1", "HYBRID_DLRM", "last bottom layer"),
        ("HYBRID_DLRM x\n1\n" + ROW, "t, line 1", "x", "a whole number"),
        ("DATA 3\n1\n" + ROW, "t, line 1", "DATA 3", "nothing else"),
        ("DATA\n", "t", "no second line", "the number of layers"),
        ("DATA\n" + ROW, "t, line 2", "fc -1 7 ALLTOALL", "alone"),
        ("DATA\n0\n", "t, line 2", "0", "1 layer and more"),
        ("DATA\n2\n\n" + ROW, "t", "1 layers", "2, as t, line 2 says"),
        ("DATA\n1\n" + ROW + " 9", "t, line 3", "13 words", "12: name"),
        ("DATA\n1\n" + ROW.replace("NONE", "ALLTOSOME"), "t, line 3", "ALLTOSOME", "NONE, ALLR"),
        ("DATA\n1\n" + ROW.replace("8192", "-8"), "t, line 3", "-8", "size of the weight grad"),
        ("DATA\n1\n" + ROW.replace("8192", "0"), "t, line 3", "ALLREDUCE 0", "above 0, or NONE"),
        ("DATA\n1\n" + ROW.replace("\t7\t", "\t1e9\t"), "t, line 3", "1e9", "time of the forward"),
    ],
)
def test_a_wrong_file_is_refused_with_place_found_and_allowed(
    text: str, place: str, found: str, allowed: str
) -> None:
    with pytest.raises(LayerFileError) as caught:
        parse_layers(text, "t")
    assert (caught.value.place, caught.value.found) == (place, found)
    assert allowed in caught.value.expected


def test_a_spec_with_a_wrong_file_names_key_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    with pytest.raises(SpecError, match=r"workload.path: .*No such file .*table.txt"):
        load_spec(tmp_path / "spec.yaml")
    (tmp_path / "table.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match=r"workload.path: .*no UTF-8 at byte 0"):
        load_spec(tmp_path / "spec.yaml")
    (tmp_path / "table.txt").write_text("DATA\n1\nfc -1\n")
    with pytest.raises(SpecError, match=r"workload.path: .*2 words .*table.txt, line 3.*12: name"):
        load_spec(tmp_path / "spec.yaml")


WORDS = st.sampled_from(
    ["DATA", "HYBRID_DLRM", "MODEL", "3", "-1", "0", "NONE", "ALLREDUCE", "1e5", "\u0663", "9" * 30]
)
LINES = st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=14).map(" ".join)


@given(st.one_of(st.text(), st.lists(st.one_of(LINES, st.just(ROW)), max_size=6).map("\n".join)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_layers(text, "t")
    except LayerFileError as error:
        assert error.place.startswith("t")
        assert error.found
        assert error.expected
    else:
        assert found["layers"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("parallelism: hybrid-data-model", "innermost"),
        ("parallelism: hybrid-data-model, innermost: 3", "a multiple of innermost"),
        ("parallelism: data, innermost: 2", "no innermost"),
        ("parallelism: hybrid-dlrm", "last_bottom_layer from 1 to 0"),
        ("parallelism: data, last_bottom_layer: 1", "no last_bottom_layer"),
        ("parallelism: none", "hybrid-dlrm"),
        ("parallelism: data, path: x", "either path or layers"),
    ],
)
def test_keys_that_do_not_fit_are_refused(keys: str, expected: str) -> None:
    layers = "layers: [{name: a, forward: {compute: 1us}}, {name: b}]"
    workload = f"{{kind: layers, ranks: 4, {keys}, {layers}}}"
    with pytest.raises(SpecError, match=expected):
        parse_spec(f"name: t\nfabric: {{kind: flat, hosts: 4}}\nworkload: {workload}\n")
