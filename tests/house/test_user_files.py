"""Files of users, fuzzed: every reader of YAML, JSON or XML answers a bad one by an error of its
own, which names the file, and soon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.astra.errors import AstraInputError
from analysis.astra.files.memory import read_memory
from analysis.astra.files.network import read_network
from analysis.astra.files.system import read_system
from analysis.calibration.calibration import read_calibration
from analysis.calibration.observations import CalibrationError
from collectives.msccl.elements import MscclError
from collectives.msccl.read import read_file
from groundwire.labs.errors import LabError
from groundwire.labs.folder import open_folder
from groundwire.labs.lab import read_lab
from groundwire.studies.planning import plan_study
from tests.topologies.spec_mistakes import GOOD
from topologies.layer_file import LayerFileError, read_layer_file
from topologies.spec.design.document import load_design
from topologies.spec.spec import SpecError, load_spec
from workloads.models.operation_times import OperationTimesError, read_operation_times
from workloads.torch_backend.configuration import ConfigurationError, read

Reader = Callable[[Path], object]

YAML: dict[str, tuple[Reader, type[ValueError]]] = {
    "spec": (load_spec, SpecError),
    "study": (plan_study, SpecError),
    "design": (load_design, SpecError),
    "astra-network": (read_network, AstraInputError),
    "collectives": (lambda path: read(path.read_text(), str(path)), ConfigurationError),
    "lab": (lambda path: _read_lab(path, "lab.yaml", read_lab), LabError),
    "student": (lambda path: _read_lab(path, "student.yaml", open_folder), LabError),
}
JSON: dict[str, tuple[Reader, type[ValueError]]] = {
    "calibration": (read_calibration, CalibrationError),
    "astra-system": (read_system, AstraInputError),
    "astra-memory": (read_memory, AstraInputError),
    "profile": (read_operation_times, OperationTimesError),
}

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {k0: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}], k{n}: 1}}\n" for n in range(1, 12)
)
KEYS = "? &a0 [x]\n: 1\n" + "".join(
    f"? &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n: {n}\n" for n in range(1, 12)
)
BAD_VALUES = (
    "!!bool maybe", "!!int x", "!!float x", "!!timestamp soon", "2001-99-99", "0b_", "=", "<<",
    "!!binary '\u00e9'", "!!set [a]", "!!omap {a: 1}", "!!pairs [a]", "!!python/name:os.system x",
    "!unknown {a: 1}", "!!int {a: 1}", "9" * 5000, "{[1, 2]: 3}", "*nowhere", "\x07", "[" * 1000,
    "{{}: 1}", "? ? x", "@", "`", "!!seq x", "!!map []", "!!str [1]", "!!null {}", ".nan", "1e999",
)  # fmt: skip


def _read_lab(path: Path, name: str, reader: Reader) -> object:
    (path.parent / name).write_bytes(path.read_bytes())
    return reader(path.parent)


def _refused(place: Path, reader: Reader, error: type[ValueError], text: str | bytes) -> str:
    """The reader's refusal of a file with this text; empty where it takes the file."""
    file = place / "file.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    began = time.process_time()
    try:
        reader(file)
    except error as refused:
        assert str(place) in str(refused)
        assert len(str(refused)) < 20_000
        return str(refused)
    finally:
        assert time.process_time() - began < 5
    return ""


@pytest.mark.parametrize("bomb", [BOMB, MERGES, KEYS], ids=["lists", "merges", "keys"])
@pytest.mark.parametrize("kind", YAML)
def test_aliases_of_aliases_are_refused_at_once(kind: str, bomb: str, tmp_path: Path) -> None:
    said = _refused(tmp_path, *YAML[kind], bomb)
    assert "expected aliases that stand for at most 100,000 values" in said


@pytest.mark.parametrize("kind", YAML)
def test_a_value_that_its_tag_does_not_allow_is_named(kind: str, tmp_path: Path) -> None:
    for number, value in enumerate(BAD_VALUES[:7]):
        said = _refused(tmp_path, *YAML[kind], f"name: x\nsection:\n  key: {value}\n")
        assert "line 3: section.key: found " in said, (number, said)
        assert "; expected " in said


@pytest.mark.parametrize("kind", YAML)
@given(st.data())
def test_no_yaml_is_a_traceback(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Values that YAML has trouble with, at any place of a file that begins well."""
    place = tmp_path_factory.getbasetemp() / kind
    place.mkdir(exist_ok=True)
    lines = data.draw(st.sampled_from([GOOD, _STUDY, _DESIGN])).splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        value = data.draw(st.sampled_from(BAD_VALUES) | st.text(max_size=12))
        head, colon, _ = lines[at].partition(":")
        lines[at] = f"{head}{colon} {value}" if colon else value
    _refused(place, *YAML[kind], "\n".join(lines))


@pytest.mark.parametrize("kind", JSON)
@given(
    st.sampled_from(["[" * 100_000, '{"a":' * 50_000, "9" * 5000, "NaN", '{"a": Infinity}', "\x00"])
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["traceEvents", "name", "memory-type", "endpoint-delay", "predictor"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    ).map(json.dumps)
)
def test_no_json_is_a_traceback(
    kind: str, tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    place = tmp_path_factory.getbasetemp() / kind
    place.mkdir(exist_ok=True)
    _refused(place, *JSON[kind], text)


_ENTITIES = "<!DOCTYPE algo [<!ENTITY a0 'x'>" + "".join(
    f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 12)
)


@pytest.mark.parametrize(
    "text",
    [
        f"{_ENTITIES}]><algo coll='&a11;'/>",
        f"{_ENTITIES}]><algo>&a11;</algo>",
        "<!DOCTYPE algo SYSTEM 'file:///etc/passwd'><algo/>",
        "<a>" * 100_000,
        "<algo coll='allreduce' ngpus='" + "9" * 5000 + "'/>",
        "<algo coll='allreduce' ngpus='1000000000' nchunksperloop='1'/>",
        b"\xff\xfe<",
        b"\x80",
    ],
    ids=["attribute", "text", "outside", "deep", "digits", "many", "utf-16", "latin"],
)
def test_no_xml_is_a_traceback(text: str | bytes, tmp_path: Path) -> None:
    assert _refused(tmp_path, read_file, MscclError, text)


@given(st.binary(max_size=200))
def test_no_layer_file_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    _refused(tmp_path_factory.getbasetemp(), read_layer_file, LayerFileError, data)


_STUDY = """\
spec:
  fabric: {kind: flat, hosts: 4}
  workload: {kind: flows, ranks: 4, sizes: 1KB}
factors:
  fabric.link.rate: {range: [10Gbps, 400Gbps], steps: 3}
  placement: [linear, random]
limits: {cases: 10}
"""
_DESIGN = Path("topologies/designs/libra-4x4.yaml").read_text()


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ("{fabric.link.rate: {range: [10Gbps, 400Gbps], steps: 2000000000}}",
         "line 2: factors.fabric.link.rate.steps: found 2000000000; expected a whole number from 2 "
         "to 10000"),
        ("{" + ", ".join(f"fabric.x{n}: {{range: [1, 2], steps: 10000}}" for n in range(9)) + "}",
         "limits.cases: found 1,000,000,000,000,000,000,000,000,000,000,000,000 cases; expected "
         "at most 1000"),
    ],
    ids=["steps", "factors"],
)  # fmt: skip
def test_a_study_of_too_many_cases_is_refused_at_once(
    factors: str, said: str, tmp_path: Path
) -> None:
    base = "spec: {fabric: {kind: flat, hosts: 4}, workload: {kind: flows, ranks: 4, sizes: 1KB}}"
    assert said in _refused(tmp_path, plan_study, SpecError, f"{base}\nfactors: {factors}\n")
