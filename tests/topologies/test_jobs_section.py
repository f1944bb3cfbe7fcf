"""Specs of several jobs: where they are placed, what each is by itself, and their mistakes."""

from __future__ import annotations

import pytest

from topologies.spec.scaling import scale_spec
from topologies.spec.spec import Spec, SpecError, parse_spec

_FABRIC = "name: shared\nfabric: {kind: flat, hosts: 6}\n"


def _spec(jobs: str, more: str = "") -> Spec:
    return parse_spec(f"{_FABRIC}{more}jobs: [{jobs}]")


def _job(name: str, ranks: int = 2, more: str = "") -> str:
    return f"{{name: {name}, workload: {{kind: dlrm, ranks: {ranks}}}{more}}}"


def test_a_policy_takes_hosts_that_no_job_before_has() -> None:
    spec = _spec(f"{_job('a')}, {_job('b', 2, ', placement: {0: h3, 1: h0}')}, {_job('c')}")
    assert [(job.first, job.hosts) for job in spec.plan.jobs] == [
        (0, ("h0", "h1")),
        (2, ("h3", "h0")),
        (4, ("h2", "h4")),
    ]
    assert spec.plan.hosts == ("h0", "h1", "h3", "h0", "h2", "h4")


def test_each_job_is_a_spec_with_one_workload() -> None:
    more = "compute: {device: a100}\n"
    spec = _spec(
        f"{_job('a', 2, ', repeat: 4')}, {_job('b', 2, ', compute: {device: none}')}, "
        f"{_job('c', 2, ', repeat: 0')}",
        more,
    )
    parts = spec.parts
    assert list(parts) == ["a", "b"]
    assert parts["a"].workload.iterations == 12 and parts["a"].compute.device == "a100"
    assert parts["b"].compute.device == "none"
    assert parts["b"].plan.hosts == ("h2", "h3")
    assert parse_spec(parts["a"].to_yaml()) == parts["a"]


_CLASSES = (
    "fabric: {kind: flat, hosts: 6, queue: {kind: classes, classes: "
    "{bulk: {priority: 1}, train: {priority: 4, weight: 2, queue: {kind: lossless}}}}}\n"
)


def test_a_job_has_a_class_of_its_own_or_that_of_the_spec() -> None:
    jobs = f"{_job('a', 2, ', class: train')}, {_job('b')}, {_job('c', 2, ', class: 6')}"
    spec = parse_spec(f"name: classes\n{_CLASSES}class: bulk\njobs: [{jobs}]")
    assert [part.socket_priority for part in spec.parts.values()] == [4, 1, 6]
    assert spec.priorities(over_roce=False) == (4, 4, 1, 1, 6, 6)
    assert parse_spec(spec.to_yaml()) == spec


def test_queue_pairs_can_have_another_class_than_sockets() -> None:
    roce = "transport: {kind: roce, class: train}\n"
    programs = "collectives: {backend: programs, all_reduce: {algorithm: ring}}\n"
    work = "{kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}"
    spec = parse_spec(
        f"name: classes\n{_CLASSES.replace('6,', '6, link: {mtu: 4200},')}{roce}{programs}"
        f"jobs: [{{name: a, class: bulk, workload: {work}}}, {{name: b, workload: {work}}}]"
    )
    assert spec.priorities(over_roce=True) == (4, 4, 4, 4)
    assert spec.priorities(over_roce=False) == (1, 1, 0, 0)
    assert (spec.parts["a"].rdma_priority, spec.parts["a"].socket_priority) == (4, 1)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("{a: {priority: 1}, b: {priority: 1}}", "a and b have 1"),
        ("{a: {priority: 8}}", "priority"),
        ("{}", "at least 1"),
        ("{a: {priority: 1, weight: 0}}", "weight"),
        ("{a: {priority: 1, queue: {kind: lossless, lossy_priorities: [0]}}}", "lossy_priorities"),
        ("{a: {priority: 1, queue: {kind: cells}}}", "cells serve all classes as one"),
        ("{a: {priority: 1, queue: {kind: classes, classes: {b: {priority: 2}}}}}", "kind"),
    ],
)
def test_mistakes_in_classes_are_named(classes: str, message: str) -> None:
    fabric = f"{{kind: flat, hosts: 2, queue: {{kind: classes, classes: {classes}}}}}"
    with pytest.raises(SpecError, match=message):
        parse_spec(f"name: x\nfabric: {fabric}\nworkload: {{kind: dlrm, ranks: 2}}")


def test_a_job_of_an_unknown_class_is_refused() -> None:
    with pytest.raises(SpecError, match=r"jobs\[0\].class: found trian; did you mean train"):
        parse_spec(f"name: x\n{_CLASSES}jobs: [{_job('a', 2, ', class: trian')}]")


def test_the_resolved_spec_is_the_same_spec() -> None:
    spec = _spec(_job("a", 2, ", start: 5ms"))
    assert parse_spec(spec.to_yaml()) == spec
    assert spec.with_overrides({"jobs.0.start": "7us"}).jobs[0].start_ns == 7000


def test_a_spec_with_one_workload_says_nothing_of_jobs() -> None:
    spec = parse_spec(f"{_FABRIC}workload: {{kind: dlrm, ranks: 2}}")
    assert "jobs" not in spec.to_dict() and spec.parts == {"shared": spec}


def test_starts_and_devices_of_jobs_are_slowed_down_with_the_fabric() -> None:
    slow = scale_spec(_spec(_job("a", 2, ", start: 5us, compute: {device: v100}")), 10)
    assert slow.jobs[0].start_ns == 50_000
    assert slow.jobs[0].compute is not None and slow.jobs[0].compute.slowdown == 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "workload: found nothing; this key is required"),
        (
            f"workload: {{kind: dlrm, ranks: 2}}\njobs: [{_job('a')}]",
            "jobs: found workload, too; expected either workload or jobs",
        ),
        (f"jobs: [{_job('a')}, {_job('a')}]", "jobs: found 2 jobs named a; expected each name"),
        (f"jobs: [{_job('a', 8)}]", "jobs[0].workload.ranks: found 8; expected at most 6"),
        (
            f"jobs: [{_job('a', 4)}, {_job('b', 4)}]",
            "jobs[1].workload.ranks: found 4; expected fewer, or hosts given in placement: "
            "4 ranks need 4 hosts, the fabric has left 2",
        ),
        (
            f"jobs: [{_job('a', 2, ', placement: {0: h1, 1: h9}')}]",
            "jobs[0].placement[1]: found h9",
        ),
        (
            "jobs: [{name: a, workload: {kind: collectives, ranks: 2, "
            "operations: [{kind: broadcast, size: 4, root: 5}]}}]",
            "jobs[0].workload.operations[0].root: found 5",
        ),
        (f"jobs: [{_job('a', 2, ', repeat: 0')}]", "jobs: found jobs that all do nothing"),
        (
            "jobs: [{name: a, workload: {kind: command, argv: [x], ranks: 2}, repeat: 2}]",
            "jobs[0].repeat: found 2; expected 0 or 1",
        ),
        (
            f"jobs: [{_job('a', 2, ', compute: {device: real}')}]",
            "jobs[0].compute.device: found real; expected a modelled device",
        ),
        (
            f"jobs: [{_job('a')}]\nfaults: [{{kind: link-down, link: h0-s0, iteration: 0}}]",
            "faults[0].iteration: found 0; expected at (a time)",
        ),
        (f"placement: {{0: h1}}\njobs: [{_job('a')}]", "placement: found"),
        ("jobs: [{name: a/b, workload: {kind: dlrm, ranks: 2}}]", "jobs[0].name: found a/b"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"{_FABRIC}{text}")
    assert said in str(caught.value)
