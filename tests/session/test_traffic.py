"""How long an iteration will take, told before it does: what ranks are to send, and how fast."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from emulator.network.network import Network
from emulator.progress import Progress
from emulator.ranks.traffic import TrafficOfRanks, links_of_a_message, traffic_heard
from groundwire.commands.console.progress_display import ProgressDisplay
from groundwire.commands.console.traffic_left import TrafficLeft
from topologies.spec.spec import parse_dict
from workloads.observer.traffic import Traffic, sent_bytes

_GPUS = {
    "name": "traffic",
    "fabric": {"kind": "flat", "hosts": 4},
    "workload": {"kind": "command", "argv": ["python", "t.py"], "ranks": 4, "gpus_per_host": 1},
}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("all_reduce", 1500), ("all_gather", 750), ("all_to_all", 750), ("send_recv", 500)],
)
def test_a_rank_sends_what_gloos_ring_has_it_send(kind: str, expected: int) -> None:
    assert sent_bytes(kind, 1000, 4) == expected


def test_ranks_are_added_up_over_the_links_of_their_messages() -> None:
    said: list[Progress] = []
    spec = parse_dict(_GPUS)
    assert links_of_a_message(spec) == 2.0  # up to the switch, and down
    traffic = TrafficOfRanks(2, 2.0, said.append)
    traffic.hear(0, 0, 100, False)
    traffic.hear(0, 0, 120, False)  # not much more: not told
    traffic.hear(1, 0, 130, True)
    traffic.hear(0, 0, 140, True)
    traffic.hear(0, 1, 10, True)
    assert [(each.of_iteration, each.to_send_bytes) for each in said] == [
        (0, 200), (0, 500), (0, 540), (1, 20)
    ]  # fmt: skip


def test_what_a_rank_posts_comes_to_the_run(tmp_path: Path) -> None:
    session = SimpleNamespace(directory=tmp_path)
    network = cast(Network, cast(Any, SimpleNamespace(session=session)))
    said: list[Progress] = []
    with traffic_heard(parse_dict(_GPUS), network, said.append):
        for rank in range(4):
            traffic = Traffic(str(tmp_path / "traffic"))
            for _ in range(3):
                traffic.posted("all_gather", 16 << 20, 4, rank, 0)
            traffic.launched(rank, 0)
    assert said[-1].to_send_bytes == 4 * 2 * 3 * (12 << 20)
    assert Progress.decode(said[-1].encode()) == said[-1]


def test_an_iteration_takes_what_is_left_at_the_rate_so_far() -> None:
    left = TrafficLeft()
    left.sent(1_000, 0.0)
    left.told(0, 12_400_000_000)
    assert left.left_s() is None and left.in_words() == "iteration 0: 12.4 GB to send"
    left.sent(9_000, 10.0)  # ranks meet: no traffic yet
    left.sent(1_000 + 100_000_000, 15.0)
    left.sent(1_000 + 200_000_000, 20.0)  # 20 MB a second
    assert left.left_s() == pytest.approx(12_200_000_000 / 20e6)
    assert left.in_words() == (
        "iteration 0: 12.4 GB to send, about 10 min at 1.2 GB of traffic a minute"
    )
    left.sent(1_000 + 12_400_000_000, 630.0)
    assert left.left_s() == 0
    left.told(1, 12_400_000_000)  # at the rate of the one before
    assert left.left_s() == pytest.approx(620, rel=0.01)


def test_a_simulated_network_counts_for_itself() -> None:
    left = TrafficLeft()
    left.told(0, 1_000_000)
    left.sent(250_000, 2.0, apart=True)
    left.sent(500_000, 5.0, apart=True)
    left.sent(7_000_000, 6.0)  # by the guest's own ports
    assert left.left_s() == pytest.approx(6.0)


def test_the_display_says_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    output = StringIO()
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with ProgressDisplay(Console(file=output, width=200), StringIO()) as display:
        display.report(Progress("traffic", of_iteration=0, to_send_bytes=10**9))
        for now[0], sent in ((4.0, 10**7), (7.0, 4 * 10**7), (8.0, 5 * 10**7)):
            display.report(Progress("clock", clock_ns=1, sent_bytes=sent))
    assert output.getvalue().count("iteration 0: 1.0 GB to send, about 2 min at") == 1
