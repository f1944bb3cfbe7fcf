"""Files of other programs are named where a spec, a trace or an algorithm is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.chakra.errors import ChakraError
from analysis.chakra.sources.read import read_workload
from collectives.msccl.elements import MscclError
from collectives.msccl.read import read
from topologies.spec.errors import SpecError
from topologies.spec.foreign_files import foreign_file
from topologies.spec.spec import load_spec

_FILES = {
    "GOAL": "// two ranks\nnum_ranks 2\nrank 0 {\nl1: calc 5\n}\nrank 1 {\n}\n",
    "GraphML": "<?xml version='1.0'?>\n<!-- x --><graphml><graph/></graphml>",
    "Kineto": '{"schemaVersion": 1, "traceEvents": []}',
    "MSCCL++": '{"name": "x", "collective": "allreduce", "gpus": [{"id": 0}]}',
    "connection matrix": "Nodes 4\nConnections 2\n0->1 start 0 size 200\n2->3 start 0 size 200\n",
    "topology of ns-3": "3 1 2\n2\n0 2 100Gbps 0.001ms 0\n1 2 100Gbps 0.001ms 0\n",
    "flows of ns-3": "1\n0 1 3 100 200000 2.0\n",
}


@pytest.mark.parametrize("name", _FILES)
def test_a_foreign_file_is_named_with_what_to_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_text(_FILES[name])
    with pytest.raises(SpecError) as no_spec:
        load_spec(path)
    assert name in str(no_spec.value) and "expected a spec: " in str(no_spec.value)
    if name not in ("GOAL", "Kineto", "connection matrix", "flows of ns-3"):
        with pytest.raises(ChakraError, match="is no execution trace") as no_trace:
            read_workload(path)
        assert name in str(no_trace.value) and str(path) in str(no_trace.value)
    if not _FILES[name].startswith("<"):
        with pytest.raises(MscclError) as no_algorithm:
            read(_FILES[name], str(path))
        assert name in str(no_algorithm.value)


def test_a_broken_algorithm_is_still_one() -> None:
    with pytest.raises(MscclError, match="no element found"):
        read('<algo name="x">\n<gpu id="0">\n')


def test_specs_are_no_foreign_files() -> None:
    specs = list(Path("topologies").glob("*.yaml"))
    assert specs and not any(foreign_file(spec.read_text()) for spec in specs)
