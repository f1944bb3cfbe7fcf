"""The predictor `packet`: to the nanosecond what the model in Python says, on whatever is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from analysis.predict.models.packet import Packet
from analysis.predict.models.tcp import LinuxTcp
from analysis.predict.setting import setting_of_spec
from analysis.predict.whole_run import PredictedRun, predict_run
from simulation.columns import Column, pack, unpack
from simulation.engine_process import run_engine
from simulation.failure import SimulationError
from topologies.spec.spec import Spec, parse_dict

_HOSTS: dict[str, tuple[int, dict[str, Any]]] = {
    "flat": (6, {"kind": "flat", "hosts": 6}),
    "fat-tree": (16, {"kind": "fat-tree", "k": 4}),
    "leaf-spine": (6, {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 3}),
    "torus": (6, {"kind": "torus", "dims": [3, 2]}),
    "mesh": (6, {"kind": "mesh", "dims": [2, 3]}),
}


@st.composite
def _queues(draw: st.DrawFn) -> dict[str, Any]:
    buffer = draw(st.sampled_from([20_000, 50_000, 100_000, 400_000, 4_000_000]))
    k = min(draw(st.sampled_from([10_000, 20_000, 50_000])), buffer)
    codel = {
        "buffer": buffer,
        "target": draw(st.sampled_from(["10us", "100us", "5ms"])),
        "interval": draw(st.sampled_from(["100us", "1ms"])),
    }
    found: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"kind": "droptail", "buffer": buffer},
                {"kind": "dctcp", "k": k, "buffer": buffer},
                {"kind": "voq", "buffer": buffer, "k": k},
                {"kind": "codel", **codel},
                {"kind": "codel", **codel, "ce_threshold": "20us"},
                {"kind": "fq_codel", **codel},
                {"kind": "red", "kmin": k // 2, "kmax": k, "weight": 0.1, "buffer": buffer},
                {
                    "kind": "red",
                    "kmin": k // 2,
                    "kmax": k,
                    "weight": 1,
                    "buffer": buffer,
                    "ecn": False,
                },
                {"kind": "shared", "buffer": buffer, "alpha": 0.5},
                {"kind": "shared", "buffer": buffer, "alpha": 1, "k": k},
                {"kind": "lossless", "xoff": 30_000, "xon": 20_000, "buffer": 4_000_000, "k": k},
            ]
        )
    )
    return found


@st.composite
def _workloads(draw: st.DrawFn, ranks: int, aggregates: bool) -> dict[str, Any]:
    """A workload, and the section `collectives`."""
    in_flight = draw(st.integers(1, 3))
    if draw(st.booleans()):
        order = draw(st.sampled_from(["fifo", "lifo", "priority"]))
        programs = {
            "backend": "programs",
            "in_flight": in_flight,
            "order": order,
            "all_reduce": {"algorithm": "ring", "chunks": 3},
            "all_to_all": {"algorithm": "direct"},
        }
        sizes = {"sparse_features": 2 * ranks, "batch_size": 32 * ranks, "iterations": 2}
        found: dict[str, Any] = {"workload": {"kind": "dlrm", "ranks": ranks, **sizes}}
        return found | ({"collectives": programs} if draw(st.booleans()) else {})
    of = st.sampled_from(["all_reduce", "all_to_all", "all_gather", "incast", "broadcast"])
    operations: list[dict[str, Any]] = []
    for kind in draw(st.lists(of, min_size=1, max_size=3)):
        size = draw(st.sampled_from([8, 30_000, 300_000])) // (8 * ranks) + 1
        operations.append({"kind": kind, "size": size * 8 * ranks})
        if kind == "all_reduce":
            with_trees = ["aggregation"] if aggregates else []
            program = draw(st.sampled_from([None, "ring", "direct", *with_trees]))
            if program:
                operations[-1]["program"] = {"algorithm": program}
    found = {"workload": {"kind": "collectives", "ranks": ranks, "operations": operations}}
    if aggregates:
        found["aggregation"] = {"slots": 16}
    return found | {"collectives": {"backend": "programs", "in_flight": in_flight}}


@st.composite
def _specs(draw: st.DrawFn) -> Spec:
    hosts, fabric = draw(st.sampled_from(list(_HOSTS.values())))
    ranks = draw(st.integers(2, min(hosts, 8)))
    link = {
        "rate": draw(st.sampled_from(["10Gbps", "25Gbps", "37Gbps", "100Gbps", "400Gbps"])),
        "delay": draw(st.sampled_from(["0ns", "100ns", "1us", "20us"])),
        "mtu": draw(st.sampled_from([1500, 4200, 9000])),
    }
    control = draw(st.sampled_from(["cubic", "reno", "dctcp", "bbr"]))
    transport = {
        "congestion_control": control,
        "initial_window": draw(st.sampled_from([1, 2, 10, 40])),
        "min_rto": draw(st.sampled_from(["200ms", "5ms"])),
        "rcvbuf": draw(st.sampled_from(["16MB", "2MB", "200KB"])),
    }
    return parse_dict(
        {
            "name": "drawn",
            "fabric": {**fabric, "link": link, "queue": draw(_queues())},
            "transport": transport,
            "seed": draw(st.integers(1, 100)),
            **draw(_workloads(ranks, fabric["kind"] in ("fat-tree", "leaf-spine"))),
        }
    )


def _times(run: PredictedRun) -> list[list[float]]:
    iterations: list[list[float]] = [
        [each.duration_ns, each.exposed_comm_ns] for each in run.iterations
    ]
    return [list(run.collectives.values()), list(run.starts_ns.values()), *iterations]


@given(spec=_specs())
@hypothesis_settings(max_examples=12, deadline=None)
def test_it_says_what_the_model_in_python_says(spec: Spec) -> None:
    """Every time of a run to the nanosecond, and every drop, mark, packet and retransmission."""
    setting = setting_of_spec(spec)
    model, engine = LinuxTcp(), Packet()
    expected = _times(predict_run(spec, setting, model))
    assert _times(predict_run(spec, setting, engine)) == expected
    assume(model.last is not None and engine.last is not None)
    assert model.last is not None and engine.last is not None
    ends = list(model.last.endpoints.values())
    assert engine.last["packets"].item() == model.last.network.packets
    assert engine.last["end.retransmitted"].sum() == sum(end.retransmitted for end in ends)
    assert sorted(engine.last["end.received"]) == sorted(end.rcv_nxt for end in ends)
    assert sorted(engine.last["end.srtt_us_x8"]) == sorted(end.srtt_us for end in ends)


def test_columns_come_back_as_they_went() -> None:
    columns: dict[str, Column] = {
        "long": np.array([1, -(2**62)], dtype=np.int64),
        "short": np.array([7, 8, 9], dtype=np.int32),
        "none": np.zeros(0, dtype=np.int32),
        "real": np.array([0.1]),
    }
    found = unpack(b"".join(bytes(part) for part in pack(columns)))
    assert {name: found[name].tolist() for name in columns} == {
        name: column.tolist() for name, column in columns.items()
    }
    with pytest.raises(ValueError, match="found numbers of type float32"):
        list(pack({"real": np.zeros(1, dtype=np.float32)}))
    with pytest.raises(SimulationError, match="cut off"):
        unpack(b"".join(bytes(part) for part in pack(columns))[:60])


def test_what_the_engine_refuses_it_names() -> None:
    with pytest.raises(SimulationError, match=r"port\.kind: the scenario lacks this column"):
        run_engine({"tcp.mss": np.array([1448])})
