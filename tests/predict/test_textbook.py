"""Closed forms against simulations of every message, over all small cases."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest

from analysis.predict.interface import PredictorError, available_predictors, load_predictor
from analysis.predict.models.textbook import (
    Port,
    direct,
    double_binary_tree,
    halving_doubling,
    hierarchical,
    ring,
)
from analysis.predict.setting import setting_of_spec
from tests.predict.settings import make_call, make_setting
from topologies.spec.errors import SpecError
from topologies.spec.spec import parse_dict, parse_spec
from workloads.models.planned import planned_calls

_PORT = Port(alpha_ns=1000.0, beta_ns_per_byte=0.08)
_SIZES = (64, 4096, 1_000_000)


@dataclass(frozen=True)
class _Message:
    source: int
    destination: int
    size_bytes: float
    after: tuple[int, ...] = ()
    port: Port = _PORT


def _simulate(messages: list[_Message]) -> float:
    """Each message leaves when those it waits for have arrived and its sender's port is free, and
    is taken in when the receiver's is; ports serve in order of readiness, then of the list."""
    arrived: dict[int, float] = {}
    out: dict[int, float] = defaultdict(float)
    into: dict[int, float] = defaultdict(float)
    waiting = set(range(len(messages)))
    while waiting:
        ready = {
            i: max([arrived[a] for a in messages[i].after], default=0.0)
            for i in waiting
            if all(a in arrived for a in messages[i].after)
        }
        start = {i: max(t, out[messages[i].source]) for i, t in ready.items()}
        i = min(start, key=lambda i: (start[i], i))
        message, takes = messages[i], messages[i].size_bytes * messages[i].port.beta_ns_per_byte
        out[message.source] = start[i] + takes
        first_bit = max(start[i] + message.port.alpha_ns, into[message.destination])
        into[message.destination] = arrived[i] = first_bit + takes
        waiting.remove(i)
    return max(arrived.values(), default=0.0)


def _ring(ranks: list[int], size_bytes: float, steps: int, port: Port = _PORT) -> list[_Message]:
    n, messages = len(ranks), []
    for step in range(steps):
        for place in range(n):
            after = ((step - 1) * n + (place - 1) % n,) if step else ()
            messages.append(
                _Message(ranks[place], ranks[(place + 1) % n], size_bytes / n, after, port)
            )
    return messages


@pytest.mark.parametrize("world", range(2, 10))
@pytest.mark.parametrize("size_bytes", _SIZES)
def test_ring(world: int, size_bytes: int) -> None:
    for kind, steps in (("all_gather", world - 1), ("all_reduce", 2 * (world - 1))):
        simulated = _simulate(_ring(list(range(world)), size_bytes, steps))
        assert ring(kind, world, size_bytes, _PORT) == pytest.approx(simulated)


@pytest.mark.parametrize("world", range(2, 10))
@pytest.mark.parametrize("size_bytes", _SIZES)
def test_direct(world: int, size_bytes: int) -> None:
    messages = [
        _Message(rank, (rank + shift) % world, size_bytes / world)
        for shift in range(1, world)
        for rank in range(world)
    ]
    assert direct("all_to_all", world, size_bytes, _PORT) == pytest.approx(_simulate(messages))


@pytest.mark.parametrize("world", [2, 4, 8, 16])
@pytest.mark.parametrize("size_bytes", _SIZES)
def test_halving_doubling(world: int, size_bytes: int) -> None:
    distances = [world >> step for step in range(1, world.bit_length())]
    messages: list[_Message] = []
    last: dict[int, int] = {}
    for distance in (*distances, *reversed(distances)):
        now = {}
        for rank in range(world):
            after = (last[rank],) if rank in last else ()
            moved = size_bytes * distance / world
            now[rank ^ distance] = len(messages)
            messages.append(_Message(rank, rank ^ distance, moved, after))
        last = now
    simulated = _simulate(messages)
    assert halving_doubling("all_reduce", world, size_bytes, _PORT) == pytest.approx(simulated)


def _tree(root: int, order: list[int]) -> dict[int, list[int]]:
    """Parent -> children: the root with one child, and below it a perfect tree in symmetric order
    over `order`, so that its leaves are every other of them."""
    children: dict[int, list[int]] = defaultdict(list)

    def hang(low: int, high: int) -> int:
        middle = (low + high) // 2
        if low < middle:
            children[order[middle]] = [hang(low, middle - 1), hang(middle + 1, high)]
        return order[middle]

    children[root] = [hang(0, len(order) - 1)]
    return children


def _reduce(
    messages: list[_Message], tree: dict[int, list[int]], node: int, half: float
) -> tuple[int, ...]:
    """Adds the messages that bring everything below `node` to it; returns the last ones."""
    sent = []
    for child in tree.get(node, []):
        below = _reduce(messages, tree, child, half)
        messages.append(_Message(child, node, half, below))
        sent.append(len(messages) - 1)
    return tuple(sent)


def _spread(
    messages: list[_Message],
    tree: dict[int, list[int]],
    node: int,
    half: float,
    after: tuple[int, ...],
) -> None:
    """Adds the messages that bring the result from `node` to everything below it."""
    sent = []
    for child in tree.get(node, []):
        messages.append(_Message(node, child, half, after))
        sent.append((child, len(messages) - 1))
    for child, message in sent:
        _spread(messages, tree, child, half, (message,))


@pytest.mark.parametrize("world", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("size_bytes", _SIZES)
def test_double_binary_tree(world: int, size_bytes: int) -> None:
    """Both trees at once, by every port; the second is shifted by one, so that leaves of the one
    are inner ranks of the other."""
    messages: list[_Message] = []
    half = size_bytes / 2
    for shift in (0, 1):
        members = [(rank + shift) % world for rank in range(world)]
        tree = _tree(members[-1], members[:-1])
        _spread(messages, tree, members[-1], half, _reduce(messages, tree, members[-1], half))
    simulated = _simulate(messages)
    closed = double_binary_tree("all_reduce", world, size_bytes, _PORT)
    # The trees may meet at a port for a message on their ways down and up; never by more.
    assert closed <= simulated * (1 + 1e-9)
    assert simulated <= closed + 2 * size_bytes / 2 * _PORT.beta_ns_per_byte + 1e-6


@pytest.mark.parametrize(("groups", "group"), [(2, 2), (2, 4), (4, 2), (3, 3)])
@pytest.mark.parametrize("size_bytes", [7200, 720_000])
def test_hierarchical(groups: int, group: int, size_bytes: int) -> None:
    inner, outer = Port(200.0, 0.01), _PORT
    inside = _simulate(_ring(list(range(group)), size_bytes, group - 1, inner))
    across = _simulate(_ring(list(range(groups)), size_bytes / group, 2 * (groups - 1), outer))
    closed = hierarchical("all_reduce", groups * group, size_bytes, inner, outer, group)
    assert closed == pytest.approx(2 * inside + across)


def test_what_an_algorithm_does_not_do_is_refused() -> None:
    setting = make_setting("flat")
    for algorithm, kind, ranks, message in (
        ("halving-doubling", "all_to_all", 8, "allowed all_reduce"),
        ("halving-doubling", "all_reduce", 6, "found 6 ranks, allowed powers of two"),
        ("double-binary-tree", "all_gather", 8, "allowed all_reduce"),
        ("ring", "broadcast", 8, "found broadcast"),
    ):
        predictor = load_predictor("textbook", {"algorithm": algorithm})
        with pytest.raises(PredictorError, match=message):
            predictor.predict(setting, make_call(setting, kind, 4096, ranks))
    with pytest.raises(PredictorError, match=r"algorithm: found 'bruck', allowed ring"):
        load_predictor("textbook", {"algorithm": "bruck"})
    with pytest.raises(PredictorError, match="groups of 3 do not divide 8"):
        load_predictor("textbook", {"algorithm": "hierarchical", "group": 3}).predict(
            setting, make_call(setting, "all_reduce", 4096)
        )


def test_a_program_is_priced_as_the_algorithm_that_it_runs_by() -> None:
    text = (
        "name: s\nfabric: {kind: flat, hosts: 8, link: {rate: 100Gbps, delay: 500ns}}\n"
        "workload: {kind: collectives, ranks: 8, operations: [{kind: all_reduce, size: 1MB}]}\n"
        "collectives: {backend: programs, all_reduce: {algorithm: %s}}\n"
    )
    port = Port(alpha_ns=2 * 500, beta_ns_per_byte=8 / 100)
    for algorithm, form in (
        ("double-binary-tree", double_binary_tree),
        ("halving-doubling", halving_doubling),
        ("ring", ring),
    ):
        spec = parse_spec(text % algorithm)
        (planned,) = planned_calls(spec)
        found = load_predictor("textbook").predict(setting_of_spec(spec), planned.call)
        assert found == pytest.approx(form("all_reduce", 8, 1_000_000, port))
    spec = parse_spec(text % "tree")
    (planned,) = planned_calls(spec)
    with pytest.raises(PredictorError, match="runs by tree; closed forms are known of ring"):
        load_predictor("textbook").predict(setting_of_spec(spec), planned.call)


def test_the_predictor_takes_alpha_and_beta_from_the_fabric() -> None:
    setting = make_setting("fat-tree")
    call = make_call(setting, "all_reduce", 16_000_000)
    port = Port(alpha_ns=6 * 500, beta_ns_per_byte=8 / 100)
    expected = ring("all_reduce", 16, 16_000_000, port)
    assert load_predictor("textbook").predict(setting, call) == pytest.approx(expected)


def test_a_spec_may_ask_every_predictor_that_needs_no_file() -> None:
    fabric = {"kind": "flat", "hosts": 2}
    workload = {"kind": "collectives", "ranks": 2, "operations": [{"kind": "barrier"}]}
    raw = {"name": "s", "fabric": fabric, "workload": workload}
    every = sorted(set(available_predictors()) - {"external"})
    assert parse_dict(raw | {"predict": every}).predict == tuple(every)
    with pytest.raises(SpecError, match="external"):
        parse_dict(raw | {"predict": ["external"]})
