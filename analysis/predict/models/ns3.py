"""ns-3, packet by packet: the same fabric, queues, transport and message schedule."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from analysis.predict.engines.paths import Paths, paths_of
from analysis.predict.interface import PredictorError, Setting
from collectives.call import CollectiveCall
from collectives.schedule.gloo import GLOO
from collectives.schedule.gloo_steps import gloo_steps
from collectives.schedule.schedule import Post
from topologies.extras import install_line
from topologies.spec.queue_section import Dctcp, DropTail, QueueSpec

_RECEIVE, _SEND, _WAIT_RECEIVE, _WAIT_SEND = range(4)
_FIRST_ADDRESS = IPv4Address("10.0.0.1")
_LIMIT_NS = 60_000_000_000


class Ns3:
    """Built-in predictor "ns3"; needs the extra of that name (PyPI ns3).

    Drop-tail and DCTCP queues; every pair of ranks takes the path that flow knows for it. A
    collective that takes more than `timeout_s` of real time is given up.
    """

    name = "ns3"
    ignores = (
        "what Linux's TCP does otherwise than ns-3's; the host's network stack; queue disciplines "
        "other than drop-tail and DCTCP's step"
    )

    def __init__(self, timeout_s: float = 600.0) -> None:
        if find_spec("ns") is None:
            raise PredictorError(f"ns3 needs the package of that name: {install_line('ns3')}")
        self._timeout_s = timeout_s
        self.last_run: dict[str, Any] = {}
        """Figures of the last prediction: wall_s and processor_s (simulation alone), and events."""

    def predict(self, setting: Setting, call: CollectiveCall) -> int:
        """Nanoseconds. Raises PredictorError for queues that it has not, or when ns-3 fails."""
        if call.schedule.sends_nothing(call.shape):
            return 0
        text = json.dumps(_describe(setting, call))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "analysis.predict.models.ns3_run"],
                input=text,
                capture_output=True,
                text=True,
                timeout=self._timeout_s,
                cwd=Path(__file__).resolve().parents[3],
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PredictorError(
                f"ns-3 took more than {self._timeout_s:.0f} s for {call.kind} of "
                f"{call.size_bytes} bytes"
            ) from None
        if done.returncode != 0:
            tail = "\n".join(done.stderr.strip().splitlines()[-5:])
            raise PredictorError(f"ns-3 failed with {done.returncode}: {tail}")
        self.last_run = json.loads(done.stdout.strip().splitlines()[-1])
        if self.last_run["duration_ns"] < 0:
            raise PredictorError(f"ns-3: {call.kind} did not end within {_LIMIT_NS / 1e9:.0f} s")
        return int(self.last_run["duration_ns"])


def _describe(setting: Setting, call: CollectiveCall) -> dict[str, Any]:
    """The network, the connections' paths and every rank's program, as ns3_run takes them."""
    paths = paths_of(setting)
    if paths.outer_bytes:
        raise PredictorError("ns3 does not wrap packets in segments; allowed: packet, flow")
    node = {n.name: i for i, n in enumerate(setting.fabric.nodes)}
    messages, programs = _programs(setting, call)
    pairs = sorted({(min(a, b), max(a, b)) for a, b, _ in messages})
    return {
        "nodes": len(node),
        "links": [
            {
                "index": link.index,
                "a": node[link.a.node],
                "b": node[link.b.node],
                "rate_bps": link.rate_bps,
                "delay_ns": link.delay_ns,
                "queues": [_queue(link.a.queue), _queue(link.b.queue)],
            }
            for link in setting.fabric.links
        ],
        "mtu_bytes": paths.mtu_bytes,
        "transport": {
            "congestion_control": setting.transport.congestion_control,
            "rcvbuf_bytes": setting.transport.rcvbuf_bytes,
            "sndbuf_bytes": setting.transport.sndbuf_bytes,
            "initial_window": setting.transport.initial_window,
            "min_rto_ns": setting.transport.min_rto_ns,
        },
        "ranks": call.world,
        "messages": messages,
        "programs": programs,
        "pairs": [_pair(paths, call, node, i, low, high) for i, (low, high) in enumerate(pairs)],
        "limit_ns": _LIMIT_NS,
    }


def _programs(
    setting: Setting, call: CollectiveCall
) -> tuple[list[tuple[int, int, int]], list[list[tuple[int, int]]]]:
    """(messages as source, destination, bytes; operations of each member)."""
    messages: list[tuple[int, int, int]] = []
    programs: list[list[tuple[int, int]]] = [[] for _ in range(call.world)]
    posts: list[range] = []
    if call.schedule != GLOO:
        found = "unequal parts" if call.schedule.uneven else call.schedule.algorithm
        raise PredictorError(f"ns3 follows Gloo's own algorithms, not {found}")
    for step in gloo_steps(call.shape, setting.seed):
        if isinstance(step, Post):
            first = len(messages)
            messages += zip(
                step.source.tolist(),
                step.destination.tolist(),
                step.size_bytes.tolist(),
                strict=True,
            )
            posts.append(range(first, len(messages)))
            order = (_SEND, _RECEIVE) if step.sends_first else (_RECEIVE, _SEND)
            for kind in order:
                for message in posts[-1]:
                    programs[messages[message][kind == _RECEIVE]].append((kind, message))
            continue
        for message in posts[step.post]:
            source, destination, _ = messages[message]
            if step.receives:
                programs[destination].append((_WAIT_RECEIVE, message))
            if step.sends:
                programs[source].append((_WAIT_SEND, message))
    return messages, programs


def _pair(
    paths: Paths, call: CollectiveCall, node: dict[str, int], number: int, low: int, high: int
) -> dict[str, Any]:
    """Both ends of a connection, each with an address of its own and the routes towards it."""
    hosts = [paths.setting.hosts[call.ranks[member]] for member in (low, high)]
    ends = {}
    for name, rank, other, host, offset in (
        ("low", low, high, hosts[0], 0),
        ("high", high, low, hosts[1], 1),
    ):
        if not paths.setting.fabric.choice.by_headers:
            kind = paths.setting.fabric.choice.kind
            raise PredictorError(f"ns3 gives each pair one path, and routing {kind} several")
        flows = paths.setting.transport.flows
        if flows > 1:
            raise PredictorError(f"ns3 gives each connection one path, and MPTCP {flows}")
        path = paths.hashed([call.ranks[other]], [call.ranks[rank]])[0].tolist()
        routes = []
        # The first hop is known by the pair's own network.
        for directed in path[1:]:
            if directed < paths.links:
                link = paths.setting.fabric.links[directed // 2]
                start = link.a.node if directed % 2 == 0 else link.b.node
                routes.append((node[start], directed))
        ends[name] = {
            "rank": rank,
            "node": node[host],
            "address": str(_FIRST_ADDRESS + 4 * number + offset),
            "facing": paths.hashed([call.ranks[rank]], [call.ranks[other]])[0].tolist()[0],
            "routes": routes,
        }
    return ends


def _queue(queue: QueueSpec) -> dict[str, int | None]:
    if isinstance(queue, DropTail):
        return {"buffer_bytes": queue.buffer_bytes, "k_bytes": None}
    if isinstance(queue, Dctcp):
        return {"buffer_bytes": queue.buffer_bytes, "k_bytes": queue.k_bytes}
    raise PredictorError(f"ns3 has no queue {queue.kind}, only droptail and dctcp")
