"""Programs with RDMA verbs that nobody here wrote, on the RDMA devices of a fabric."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.exec.programs import execute

pytestmark = pytest.mark.skipif(
    shutil.which("ibv_rc_pingpong") is None or shutil.which("ib_send_lat") is None,
    reason="needs ibv_rc_pingpong (ibverbs-utils) and perftest",
)

_SPEC = """
fabric: {{kind: flat, hosts: 2, link: {{rate: {gbps}Gbps, delay: 1us, mtu: 4200}}}}
transport: {{kind: roce}}
capture: {{points: {points}}}
predict: []
faults: {faults}
"""
_DELAY_NS = 1_000
_LINKS = 2
_PATH_MTU = 4096
# Base header 12, invariant CRC 4, UDP 8, IPv4 20, Ethernet 14 and 4, preamble and gap 20.
_HEADERS = 82

_AS_PEERS = """
peer=; [ $RANK = 0 ] || peer=h0
both() { [ $RANK = 0 ] || sleep 0.1; "$@" $peer; }
"""


def _write(home: Path, gbps: int, points: str = "[]", faults: str = "[]") -> None:
    text = _SPEC.format(gbps=gbps, points=points, faults=faults)
    (home / "fabric.yaml").write_text(text)


@pytest.mark.parametrize(("gbps", "messages"), [(100, 40), (800, 200)])
def test_perftest_fills_a_path_and_measures_its_latency(
    tmp_path: Path, gbps: int, messages: int
) -> None:
    _write(tmp_path, gbps)
    measure = (
        f"{_AS_PEERS}both ib_write_bw -x 1 -m {_PATH_MTU} -s 1048576 -n {messages} -F\n"
        f"both ib_send_lat -x 1 -m {_PATH_MTU} -s 8 -n 100 -F\n"
    )
    done = execute(tmp_path, "fabric.yaml", "--out", "run", "--", "sh", "-c", measure)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "run" / "ranks" / "000.out").read_text()
    lines = [line.split() for line in said.splitlines()]
    found = [words for words in lines if len(words) > 4 and words[0].isdecimal()]
    (size, _, _, mean, *_), (small, _, _, _, typical_us, *_) = found
    assert (int(size), int(small)) == (2**20, 8)
    limit_bps = gbps * 1e9 * _PATH_MTU / (_PATH_MTU + _HEADERS)
    goodput_bps = 8 * float(mean) * 2**20  # perftest's MB is 2^20 bytes
    assert 0.995 * limit_bps <= goodput_bps <= limit_bps
    one_way_ns = _LINKS * (_DELAY_NS + 8 * (8 + _HEADERS) / gbps)
    assert 1e3 * float(typical_us) == pytest.approx(one_way_ns, abs=10)  # it prints two digits


def test_two_runs_are_the_same(tmp_path: Path) -> None:
    _write(tmp_path, 100, points="[hosts]")
    pingpong = f"{_AS_PEERS}both ibv_rc_pingpong -g 1 -m {_PATH_MTU} -s 100000 -n 10"
    for run in ("one", "two"):
        done = execute(tmp_path, "fabric.yaml", "--out", run, "--", "sh", "-c", pingpong)
        assert done.returncode == 0, done.stderr
    captures = [path.name for path in (tmp_path / "one" / "capture").iterdir()]
    assert captures
    for name in ("ranks/000.out", "links.jsonl", *(f"capture/{name}" for name in captures)):
        one, two = ((tmp_path / run / name).read_bytes() for run in ("one", "two"))
        assert one == two, name
    assert "10 iters" in (tmp_path / "one" / "ranks" / "000.out").read_text()


def test_who_has_lost_its_peer_is_told(tmp_path: Path) -> None:
    """perftest asks for 7 retries, which stock Soft-RoCE takes for as many as it likes."""
    _write(tmp_path, 100, faults="[{kind: link-down, link: h1-s0, at: 101ms}]")
    send = f"{_AS_PEERS}both ib_send_bw -x 1 -m {_PATH_MTU} -u 6 -s 65536 -n 2000 -F"
    done = execute(tmp_path, "fabric.yaml", "--out", "run", "--", "sh", "-c", send)
    assert done.returncode == 1
    said = "".join(path.read_text() for path in (tmp_path / "run" / "ranks").glob("*.???"))
    assert "Failed status 12" in said + done.stderr  # IBV_WC_RETRY_EXC_ERR
