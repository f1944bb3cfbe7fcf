"""The `kv_cache` workload: which host computes which request, when, and when its answer is made.

Prefill and decoding on hosts of their own is Splitwise's and DistServe's (Patel et al., ISCA 2024,
arXiv 2311.18677; Zhong et al., OSDI 2024, arXiv 2401.09670); sending a layer's part while
the next one is computed is Splitwise's, section IV-C. A token's keys and values in a layer are 2 x
heads of keys x size of a head x bytes of an element: 4 KB of Llama 3 70B, with 8 heads of 128 in 16
bits. Decoding is continuous batching (Yu et al., Orca, OSDI 2022) with steps of one length:
requests join at the beginning of a step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from topologies.spec.kv_cache_section import Arrival, KvCacheWorkload
from workloads.models.step import Action, Pause, StartMessage, WaitFor


@dataclass(frozen=True, slots=True)
class Request:
    """A request, the ranks that serve it, and when its prompt is computed; times count from the
    iteration's beginning."""

    number: int
    arrival_ns: int
    prompt: int
    output: int
    prefill: int
    decode: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """A message with keys and values of a request: of one layer, or of all."""

    name: str
    request: Request
    at_ns: int
    elements: int


@dataclass(frozen=True, slots=True)
class Answer:
    """When the tokens of a request came. `first_ns` is from its arrival to its first token, which
    the prefill host makes; `wait_ns` from then until its keys and values had come; `token_ns` the
    mean time between its tokens, None where it has one alone."""

    first_ns: int
    wait_ns: int
    token_ns: float | None


@lru_cache(maxsize=4)
def requests_of(workload: KvCacheWorkload) -> tuple[Request, ...]:
    """All requests of an iteration, in order of arrival."""
    free_ns = [0] * workload.prefill
    found = []
    for number, arrival in enumerate(_arrivals(workload)):
        rank = min(range(workload.prefill), key=lambda each: (free_ns[each], each))
        begin_ns = max(arrival.at_ns, free_ns[rank])
        end_ns = free_ns[rank] = begin_ns + arrival.prompt * workload.prefill_token_ns
        decode = workload.prefill + number % workload.decode
        found.append(
            Request(
                number,
                arrival.at_ns,
                arrival.prompt,
                arrival.output,
                rank,
                decode,
                begin_ns,
                end_ns,
            )
        )
    return tuple(found)


def _arrivals(workload: KvCacheWorkload) -> Iterator[Arrival]:
    if workload.arrivals is not None:
        yield from workload.arrivals
        return
    # Text seeds by SHA-512, the same everywhere.
    draw = random.Random(f"kv_cache/{workload.seed}")
    at_ns = 0.0
    for _ in range(workload.requests):
        if workload.per_second is not None:
            at_ns += -math.log(1 - draw.random()) * 1e9 / workload.per_second
        yield Arrival.model_construct(
            at_ns=round(at_ns), prompt=workload.prompt, output=workload.output
        )


def transfers_of(workload: KvCacheWorkload) -> list[Transfer]:
    """All messages of an iteration, in order of time."""
    found = []
    for request in requests_of(workload):
        elements = request.prompt * workload.token_bytes // workload.item_bytes
        if workload.transfer == "whole":
            name = f"kv.{request.number}"
            found.append(Transfer(name, request, request.end_ns, elements * workload.layers))
            continue
        lasts_ns = request.end_ns - request.begin_ns
        for layer in range(workload.layers):
            at_ns = request.begin_ns + lasts_ns * (layer + 1) // workload.layers
            found.append(Transfer(f"kv.{request.number}.{layer}", request, at_ns, elements))
    return sorted(found, key=lambda each: (each.at_ns, each.request.number))


def kv_cache_steps(workload: KvCacheWorkload, rank: int) -> Iterator[Action]:
    """The work of a rank: its ends of messages begin when they are to, and it waits for all. A
    prefill host computes meanwhile; a decode host is ready for what comes."""
    phase = "prefill" if rank < workload.prefill else "decode"
    mine = [
        each
        for each in transfers_of(workload)
        if rank in (each.request.prefill, each.request.decode)
    ]
    now_ns = 0
    for each in mine:
        if each.at_ns > now_ns:
            yield Pause(f"until.{each.name}", phase, each.at_ns - now_ns)
            now_ns = each.at_ns
        source, destination = each.request.prefill, each.request.decode
        yield StartMessage(each.name, "kv", each.elements, source, destination)
    for each in mine:
        yield WaitFor(each.name)


def answers(workload: KvCacheWorkload, come_ns: Mapping[int, int]) -> Sequence[Answer]:
    """The answers to all requests, by when the last of their keys and values came: `come_ns`, by
    request, from the iteration's beginning."""
    found: dict[int, Answer] = {}
    step_ns = workload.decode_step_ns
    begun_ns: dict[int, int] = {}
    busy_ns: dict[int, int] = {}
    for request in sorted(requests_of(workload), key=lambda r: (come_ns[r.number], r.number)):
        host, ready_ns = request.decode, come_ns[request.number]
        if ready_ns >= busy_ns.get(host, 0):
            begun_ns[host] = ready_ns  # it stood idle, and begins a step at once
        since_ns = ready_ns - begun_ns[host]
        joins_ns = begun_ns[host] + -(-since_ns // step_ns) * step_ns
        over_ns = joins_ns + (request.output - 1) * step_ns
        busy_ns[host] = max(busy_ns.get(host, 0), over_ns)
        later = request.output - 1
        found[request.number] = Answer(
            request.end_ns - request.arrival_ns,
            ready_ns - request.end_ns,
            (over_ns - request.end_ns) / later if later else None,
        )
    return [found[number] for number in sorted(found)]
