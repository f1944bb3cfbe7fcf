"""Requests on prefill and decode hosts: when they are computed, what is sent, what users see."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.pipeline import run
from topologies.request_file import RequestFileError, parse_requests
from topologies.spec.errors import SpecError
from topologies.spec.kv_cache_section import KvCacheWorkload
from topologies.spec.spec import load_spec, parse_dict
from workloads.models.kv_cache import answers, kv_cache_steps, requests_of, transfers_of
from workloads.models.step import Pause, StartMessage, WaitFor

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51,12,3
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,Conversation log
"""
MOONCAKE = """{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46]}
{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 47]}
"""


def _workload(**keys: object) -> KvCacheWorkload:
    return KvCacheWorkload.model_validate({"kind": "kv_cache", **keys})


@st.composite
def served(draw: st.DrawFn) -> KvCacheWorkload:
    number = st.integers(1, 4)
    return _workload(
        prefill=draw(number),
        decode=draw(number),
        requests=draw(st.integers(1, 12)),
        per_second=draw(st.sampled_from([None, 1, 50.5, 1000])),
        prompt=draw(st.integers(1, 2000)),
        output=draw(st.integers(1, 20)),
        layers=draw(st.integers(1, 6)),
        transfer=draw(st.sampled_from(["layer-wise", "whole"])),
        seed=draw(st.integers(0, 9)),
    )


@given(served())
def test_hosts_compute_one_prompt_at_a_time_and_send_all_of_it(workload: KvCacheWorkload) -> None:
    requests = requests_of(workload)
    for rank in range(workload.prefill):
        own = [each for each in requests if each.prefill == rank]
        assert all(a.end_ns <= b.begin_ns for a, b in pairwise(own))
    for request in requests:
        assert request.begin_ns >= request.arrival_ns
        assert request.end_ns - request.begin_ns == request.prompt * workload.prefill_token_ns
    sent = transfers_of(workload)
    total = workload.requests * workload.prompt * workload.token_bytes * workload.layers
    assert sum(each.elements for each in sent) * workload.item_bytes == total
    assert all(each.request.begin_ns < each.at_ns <= each.request.end_ns for each in sent)


@given(served())
def test_both_ends_of_a_message_begin_when_its_layer_is_computed(workload: KvCacheWorkload) -> None:
    at_ns = {each.name: each.at_ns for each in transfers_of(workload)}
    ends: dict[str, int] = dict.fromkeys(at_ns, 0)
    for rank in range(workload.ranks):
        now_ns, started, waited = 0, [], []
        for action in kv_cache_steps(workload, rank):
            match action:
                case Pause():
                    now_ns += action.duration_ns
                case StartMessage():
                    assert rank in (action.source, action.destination)
                    assert now_ns == at_ns[action.name]
                    started.append(action.name)
                    ends[action.name] += 1
                case WaitFor():
                    waited.append(action.name)
        assert started == waited
    assert set(ends.values()) == {2}


@given(served(), st.integers(0, 10**9))
def test_no_answer_is_faster_than_its_steps_and_none_waits_more_than_one(
    workload: KvCacheWorkload, late_ns: int
) -> None:
    requests = requests_of(workload)
    come_ns = {each.number: each.end_ns + late_ns for each in requests}
    step_ns = workload.decode_step_ns
    for request, answer in zip(requests, answers(workload, come_ns), strict=True):
        assert answer.first_ns == request.end_ns - request.arrival_ns
        assert answer.wait_ns == late_ns
        later = request.output - 1
        if not later:
            assert answer.token_ns is None
            continue
        assert answer.token_ns is not None
        total_ns = round(answer.token_ns * later)
        assert late_ns + later * step_ns <= total_ns < late_ns + (later + 1) * step_ns


def test_a_request_joins_at_the_next_step() -> None:
    workload = _workload(
        prefill=1,
        decode=1,
        requests=2,
        output=3,
        decode_step="10ms",
        prefill_token="1us",
        arrivals=[
            {"at": "0ns", "prompt": 1000, "output": 3},
            {"at": "14ms", "prompt": 1000, "output": 3},
        ],
    )
    # The first one's is there after 2 ms, so steps begin at 2, 12, 22 ms; the second's at 15 ms.
    first, second = answers(workload, {0: 2_000_000, 1: 15_000_000})
    assert (first.wait_ns, first.token_ns) == (1_000_000, 10_500_000)
    assert (second.wait_ns, second.token_ns) == (0, (22 + 20 - 15) / 2 * 1e6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AZURE, [("0ns", 374, 44), ("4314.579ms", 396, 109), ("4319.41ms", 12, 3)]),
        (BURST, [("0ns", 472, 18), ("113s", 417, 276)]),
        (MOONCAKE, [("0ns", 6955, 52), ("3.053s", 6472, 26)]),
    ],
)
def test_published_traces_are_read(text: str, expected: list[tuple[str, int, int]]) -> None:
    found = parse_requests(text, "t", 100)
    assert [(each["prompt"], each["output"]) for each in found] == [e[1:] for e in expected]
    at = [_workload(requests=1, arrivals=[each]).arrivals for each in found]
    wanted = [
        _workload(requests=1, arrivals=[{"at": e[0], "prompt": 1, "output": 1}]) for e in expected
    ]
    assert [each[0].at_ns for each in at if each] == [
        w.arrivals[0].at_ns for w in wanted if w.arrivals
    ]
    assert len(parse_requests(text, "t", 1)) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n", "t, line 2: found a, b, expected a trace of requests"),
        (AZURE.replace("374", "many"), "t, line 2, ContextTokens: found many"),
        (BURST.replace("\n118", "\n1"), "t, line 4: found an earlier time"),
        (MOONCAKE.replace("27482", '"soon"'), "t, line 1, timestamp: found soon"),
        (MOONCAKE.replace("[46, 47]}", "[46"), "t, line 2: found"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "t: found no requests"),
    ],
)
def test_bad_traces_are_told_by_their_line(text: str, told: str) -> None:
    with pytest.raises(RequestFileError) as refused:
        parse_requests(text, "t", 100)
    assert told in str(refused.value)


@given(st.sampled_from([AZURE, BURST, MOONCAKE]), st.data())
def test_broken_traces_are_refused_in_words(text: str, data: st.DataObject) -> None:
    whole = list(text)
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.characters())
    try:
        parse_requests("".join(whole), "t", 100)
    except RequestFileError as error:
        assert str(error).startswith("t")


def test_a_trace_beside_the_spec_becomes_its_arrivals(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(AZURE)
    spec = tmp_path / "s.yaml"
    text = "fabric: {kind: flat, hosts: 4}\nworkload: {kind: kv_cache, path: t.csv, requests: 2}\n"
    spec.write_text(text)
    workload = load_spec(spec).workload
    assert isinstance(workload, KvCacheWorkload)
    assert [each.prompt for each in workload.arrivals or ()] == [374, 396]
    (tmp_path / "t.csv").write_text(AZURE.replace("374", "-1"))
    with pytest.raises(SpecError, match=r"workload.path: found -1 .*line 2, ContextTokens"):
        load_spec(spec)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"ranks": 5}, "expected ranks: 4, prefill \\+ decode"),
        ({"per_second": 0}, "expected requests a second"),
        ({"token": 3}, "expected token to be a multiple of 2 bytes"),
        ({"layers": 1000, "requests": 100}, "expected at most 20000 messages"),
    ],
)
def test_keys_that_do_not_fit_are_refused(keys: dict[str, object], told: str) -> None:
    raw = {"name": "s", "fabric": {"kind": "flat", "hosts": 5}}
    with pytest.raises(SpecError, match=told):
        parse_dict(raw | {"workload": {"kind": "kv_cache", **keys}})


@pytest.mark.parametrize("transfer", ["layer-wise", "whole"])
def test_what_users_wait_for_is_measured_and_predicted(tmp_path: Path, transfer: str) -> None:
    """A message of 1 MB at 10 Gb/s takes 0.8 ms and less than 10% more; sent layer by layer, the
    last one alone is waited for."""
    workload = {
        "kind": "kv_cache", "prefill": 1, "decode": 1, "requests": 2, "prompt": 250, "layers": 4,
        "output": 3, "transfer": transfer,
    }  # fmt: skip
    link = {"rate": "10Gbps", "delay": "1us", "mtu": 9000}
    spec = {
        "fabric": {"kind": "flat", "hosts": 2, "link": link},
        "workload": workload,
        "predict": ["packet"],
    }
    done = run(spec, kernel="virtual", out=tmp_path / "run", pages=False)
    assert done.result["valid"], done.result["invalid_reasons"]
    row = done.result["kv_cache"]
    least_ns = 1_024_000 * 8 // 10 * (1 if transfer == "layer-wise" else 4)
    assert least_ns < row["wait_ns"]["mean"] < 1.1 * least_ns
    # The prompt takes 10 ms; the second one waits for the first.
    assert row["first_token_ns"] == {"mean": 15e6, "largest": 20_000_000}
    predicted = row["predicted"]["packet"]
    assert predicted["wait_ns"]["mean"] == pytest.approx(row["wait_ns"]["mean"], rel=0.02)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["kv_cache"] == row
