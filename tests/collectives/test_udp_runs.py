"""Programs' messages as UDP datagrams: over the loopback, and in the virtual kernel."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.runs.run import load_run
from tests.session.command import run_spec, valid_rows
from topologies.spec.spec import SpecError, parse_spec
from workloads.execution.transports.udp import PART, UdpPlace
from workloads.execution.transports.udp_links import UdpEnds, UdpLinks

SPEC = """
name: udp
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2,
  link: {{rate: 10Gbps, delay: 1us, mtu: 1500}}}}
transport: {{kind: udp, ports: {ports}, timeout: 200us}}
workload:
  kind: collectives
  ranks: 4
  operations: [{{kind: all_reduce, size: 200KB}}, {{kind: all_to_all, size: 100KB}}]
collectives: {{backend: programs, all_reduce: {{algorithm: ring}},
  all_to_all: {{algorithm: direct}}}}
capture: {{points: []}}
faults: {faults}
predict: []
"""
LOSS = "[{kind: loss, link: leaf0-spine0, iteration: 0, value: 2%}]"


class _Log:
    def __init__(self) -> None:
        self.told: list[Mapping[str, Any]] = []

    def end(self, event: str, group: str, peer: int, told: Mapping[str, Any]) -> None:
        self.told.append(told)


def _pair(directory: Path, ports: int, retries: int = 20) -> tuple[list[UdpEnds], list[UdpLinks]]:
    """Two ranks on the loopback."""
    place = UdpPlace("127.0.0.1", directory, 2, ports, 1000, 20_000, 20_000_000, retries)
    ends, links = [UdpEnds(place), UdpEnds(place)], [None, None]

    def join(me: int) -> None:
        store = dist.FileStore(str(directory / "store"), -1)
        links[me] = ends[me].links(store, "default", (0, 1), me, _Log())  # type: ignore[call-overload]

    threads = [threading.Thread(target=join, args=(me,)) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends, links  # type: ignore[return-value]


@settings(max_examples=10, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=5),
    ports=st.integers(1, 4),
    every=st.integers(2, 9),
)
def test_messages_arrive_whole_though_datagrams_are_lost(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], ports: int, every: int
) -> None:
    ends, links = _pair(tmp_path_factory.mktemp("udp"), ports)
    sent = [torch.randint(0, 256, (size,), dtype=torch.uint8) for size in sizes]
    came = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
    lost = iter(range(10**6))
    whole = links[0]._put

    def put(peer: Any, number: int, datagram: Any) -> None:
        if datagram.tries == 0 and next(lost) % every == 0:
            port, peer.address = peer.address, ("127.0.0.1", 9)
            whole(peer, number, datagram)
            peer.address = port
        else:
            whole(peer, number, datagram)

    links[0]._put = put  # type: ignore[method-assign]
    works = [links[1].recv([each], 0, slot) for slot, each in enumerate(came)]
    works += [links[0].send([each], 1, slot) for slot, each in enumerate(sent)]
    for work in works:
        work.wait()
    for before, after in zip(sent, came, strict=True):
        assert torch.equal(before, after)
    log = _Log()
    ends[0].finish(log)
    assert log.told[0]["again"] >= -(-next(lost) // every)


def test_a_place_comes_back_from_the_environment_as_it_was() -> None:
    place = UdpPlace("10.0.0.2", Path("/r"), 4, 2, 1400, 256_000, 5_000_000, 20)
    assert PART.place(place.to_json()) == place


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("transport.payload=1500", "transport.payload: found 1500; expected at most 1453"),
        ("transport.window=1000", "transport.window: found 1000; expected at least a payload"),
    ],
)
def test_what_does_not_fit_is_named(key: str, said: str) -> None:
    name, value = key.split("=")
    spec = parse_spec(SPEC.format(ports=1, faults="[]"))
    with pytest.raises(SpecError, match=said):
        spec.with_overrides({name: value})


@pytest.fixture(scope="module", params=["[]", LOSS], ids=["clean", "loss"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    spec = SPEC.format(ports=8, faults=request.param)
    yield run_spec(tmp_path_factory.mktemp("udp"), spec)


def test_ranks_check_what_arrives_and_each_loss_is_sent_again(run: Path) -> None:
    assert [row["kind"] for row in valid_rows(run, 0)] == ["all_reduce", "all_to_all"]
    summary = json.loads((run / "result.json").read_text())["summary"]
    # A datagram or its answer is lost, or a segment of TCP beside it; each is sent again.
    assert summary["packets_again"] + summary["retransmits"] == summary["drops"]
    assert summary["packets_sent"] > 4 * 300_000 // 1400


def test_ports_spread_a_pair_over_both_spines(run: Path) -> None:
    found = load_run(run)
    assert all(len(set(end.ports)) == 8 for log in found.ranks for end in log.ends)
    by_spine = {
        spine: sum(link.bytes for link in found.port_counters if link.node == spine)
        for spine in ("spine0", "spine1")
    }
    assert min(by_spine.values()) > 0.2 * sum(by_spine.values())
