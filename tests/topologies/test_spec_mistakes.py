"""Malformed specs: the message names file, line, key, the value found and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topologies.spec_mistakes import GOOD, MISTAKES
from topologies.spec.spec import Spec, SpecError, load_spec, parse_dict, parse_spec


def test_the_spec_that_is_broken_below_is_good() -> None:
    assert parse_spec(GOOD).workload.ranks == 16


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str, tmp_path: Path) -> None:
    before, after, line, key, value, allowed = MISTAKES[mistake]
    text = GOOD.replace(before, after, 1)
    assert text != GOOD
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    place = f"line {line}: {key}: " if line is not None else f"{key}: "
    assert f"{place}found {value}" in message
    assert allowed in message
    # One mistake, one message; a spec that breaks at its root breaks once.
    assert len(caught.value.problems) == 1, message


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"\xff\xfe\x00", "bytes that are no UTF-8 text, at offset 0"),
        (b"name: \xff", "bytes that are no UTF-8 text, at offset 6"),
        (b"a: " + b"[" * 150 + b"]" * 150, "YAML nested too deeply; expected at most 100 levels"),
        (b"[" * 3000, "YAML nested too deeply; expected at most 100 levels"),
        (None, "a directory; expected a YAML file"),
    ],
)
def test_a_file_that_is_no_yaml_is_told_in_the_words_of_a_mistake(
    tmp_path: Path, content: bytes | None, found: str
) -> None:
    file = tmp_path / "broken.yaml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert f"found {found}" in str(caught.value)


def test_a_key_that_is_spelled_as_its_sections_kind_is_named_once() -> None:
    with pytest.raises(SpecError) as caught:
        parse_dict(
            {
                "name": "tag",
                "fabric": {"kind": "flat", "hosts": 2},
                "workload": {"kind": "collectives", "collectives": [1], "operations": []},
            }
        )
    keys = [problem.key for problem in caught.value.problems]
    assert ("workload", "collectives") in keys
    assert ("workload", "ranks") in keys
    assert all(key.count("collectives") <= 1 for key in keys)


def test_all_mistakes_are_listed_at_once(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    text = GOOD.replace("k: 4\n", "k: 5\n").replace("100Gbps", "100").replace("v100", "tpu")
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    assert [problem.key for problem in caught.value.problems] == [
        ("fabric", "link", "rate"),
        ("fabric", "k"),
        ("compute", "device"),
    ]
    assert str(caught.value).startswith(
        f"{file}: 3 mistakes\n  line 6: fabric.link.rate: found 100"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: a\nfabric: {kind: flat\nworkload: 1\n", 3),
        ("name: a\n\tfabric: 1\n", 2),
        ("name: 'a\n", 2),
        ("name: a\nfabric: *nowhere\n", 2),
        ("a: &a [*a]\n", 1),
        ("name: a\n---\nname: b\n", 2),
    ],
)
def test_yaml_that_does_not_parse_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(SpecError, match=rf"^spec\.yaml: line {line}: .*found"):
        parse_spec(text, "spec.yaml")


@pytest.mark.parametrize("text", ["", "just words", "[1, 2]", "42", "null"])
def test_a_spec_is_a_mapping(text: str) -> None:
    with pytest.raises(SpecError, match="expected a mapping with keys such as name, fabric"):
        parse_spec(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent\.yaml: .*no such file"):
        load_spec(tmp_path / "absent.yaml")
    with pytest.raises(SpecError, match="expected a YAML file"):
        load_spec(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="expected a YAML file"):
        load_spec(binary)


plain = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.sampled_from(["kind", "fat-tree", "dlrm", "8MB", "100Gbps", "", "h0", "hosts"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["kind", "k", "link", "ranks", "0", "ends"]), inner),
    ),
    max_leaves=6,
)
SECTIONS = list(Spec.model_fields)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(SECTIONS), plain, max_size=3))
def test_any_data_in_place_of_sections_is_good_or_a_spec_error(sections: dict[str, object]) -> None:
    import yaml

    raw = yaml.safe_load(GOOD) | sections
    try:
        parse_spec(yaml.safe_dump(raw))
    except SpecError as error:
        assert error.problems
        assert str(error).startswith("spec: ")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(GOOD)), st.integers(0, 40), st.text(max_size=8))
def test_damaged_text_is_good_or_a_spec_error(start: int, length: int, put: str) -> None:
    text = GOOD[:start] + put + GOOD[start + length :]
    try:
        parse_spec(text)
    except SpecError as error:
        assert error.problems
