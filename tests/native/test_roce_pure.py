"""The native kernel's preparation for RoCE; needs no root."""

from __future__ import annotations

import pytest

from emulator.linux.soft_roce import SoftRoce
from emulator.native import kernel as subject
from emulator.transports import roce
from topologies.spec.spec import parse_spec

_SPEC = """
name: roce
fabric: {kind: flat, hosts: 2, link: {mtu: 4200}, queue: {kind: dctcp}}
transport: {kind: roce, path_mtu: 4096, %s}
workload: {kind: command, ranks: 2, argv: [train]}
"""
_STOCK = SoftRoce(refused="[Errno 93] Protocol not supported")
_DEAF = SoftRoce()
_LINUX = SoftRoce(hears=True)
_OURS = SoftRoce(hears=True, controls=True)


@pytest.mark.parametrize(
    ("found", "transport", "said"),
    [
        (_STOCK, "retry_count: 7", "hears in network namespaces ([Errno 93] Protocol not"),
        (_DEAF, "retry_count: 7", "this kernel has no Soft-RoCE that hears in network namespaces"),
        (_LINUX, "retry_count: 7", None),
        (_LINUX, "congestion_control: dcqcn", "neither congestion_control nor ecn"),
        (_LINUX, "window: 1MB", "neither congestion_control nor ecn"),
        (_LINUX, "ack_every: 8", "window, ack_every or loss_recovery"),
        (_LINUX, "loss_recovery: selective-repeat", "loss_recovery: selective-repeat"),
        (_OURS, "loss_recovery: selective-repeat", None),
        (_OURS, "congestion_control: dcqcn", None),
    ],
)
def test_what_a_kernel_lacks(
    monkeypatch: pytest.MonkeyPatch, found: SoftRoce, transport: str, said: str | None
) -> None:
    monkeypatch.setattr(roce, "soft_roce", lambda: found)
    monkeypatch.setattr(subject, "missing_for_fabric", lambda _: [])
    missing = subject.missing_for(parse_spec(_SPEC % transport))
    assert len(missing) == (said is not None)
    assert said is None or said in missing[0]
