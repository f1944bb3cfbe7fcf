"""UCX as it is, without a variable of its own: over TCP, and over the fabric's RDMA devices."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.exec.programs import execute

pytestmark = pytest.mark.skipif(
    shutil.which("ucx_perftest") is None, reason="needs ucx_perftest (ucx-utils)"
)

_FABRIC = """
fabric: {{kind: flat, hosts: 2, link: {{rate: 100Gbps, delay: 1us, mtu: {mtu}}}}}
transport: {{kind: {kind}}}
capture: {{points: []}}
predict: []
"""
_MEASURE = """
peer=; [ $RANK = 0 ] || peer=10.0.0.2
for test in "tag_lat -s 8 -n 200" "tag_bw -s 65536 -n 100"; do
    [ $RANK = 0 ] || sleep 0.1
    ucx_perftest $peer -t $test -w 10 2>&1
done
"""
_MIB = 2**20


@pytest.mark.parametrize(
    ("kind", "mtu", "headers_of_small"),
    [
        # Ethernet 14 and 4, preamble and gap 20, IPv4 20, TCP 32; UCX's own 9 and a tag of 8.
        pytest.param("tcp", 9000, 107, id="tcp"),
        # As in test_verbs; UCX's own header and its tag.
        pytest.param("roce", 4200, 82 + 9, id="roce"),
    ],
)
def test_ucx_measures_the_fabric(
    kind: str, mtu: int, headers_of_small: int, tmp_path: Path
) -> None:
    """8 bytes take two delays of 1 us and two serialisations; what goes by the memory of the
    machine, where both hosts are, takes less than the fabric can."""
    (tmp_path / "fabric.yaml").write_text(_FABRIC.format(kind=kind, mtu=mtu))
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "sh", "-c", _MEASURE
    )
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "run" / "ranks" / "001.out").read_text()
    small, large = (line.split() for line in said.splitlines() if line.startswith("Final:"))
    expected_us = 2 * (1 + 8 * (8 + headers_of_small) / 100e3)
    assert float(small[2]) == pytest.approx(expected_us, abs=0.015)
    assert 93e9 < 8 * float(large[5]) * _MIB < 100e9
