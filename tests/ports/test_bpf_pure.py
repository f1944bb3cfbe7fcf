"""The eBPF assembler, and the pause controller's arithmetic. No kernel."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.linux.bpf import BpfProgram
from emulator.network.blueprint import Blueprint
from emulator.network.sysctls import TcpSettings
from emulator.switches.memory import port_number
from emulator.switches.pause_controller import allowed_reaction_ns, travel_ns
from emulator.switches.stock_switch import (
    SwitchArrangement,
    needed_qdiscs,
    needs_switch_memory,
    port_rules,
)
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric, headroom_bytes
from topologies.spec.fabric_section import FlatSpec


def _flat(queue: dict[str, Any], hosts: int = 2, **link: Any) -> Fabric:
    section = {"kind": "flat", "hosts": hosts, "queue": queue}
    section["link"] = {"rate": "100Mbps", "delay": "500us", "mtu": 1500} | link
    return build_fabric(FlatSpec.model_validate(section))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        # As `llvm-objdump -d` shows them.
        ("r0 = -1", "b7000000 ffffffff"),
        ("r2 += -KEY", "07020000 f4ffffff"),
        ("r6 = r1", "bf160000 00000000"),
        ("r7 = *(u32 *)(r6 + 8)", "61670800 00000000"),
        ("*(u32 *)(r10 - 4) = r1", "631afcff 00000000"),
        ("*(u32 *)(r10 - KEY) = 0", "620af4ff 00000000"),
        ("r1 = map ports", "18110000 07000000 00000000 00000000"),
        ("lock *(u64 *)(r9 + 8) += r7", "db790800 00000000"),
        ("r4 = atomic64_fetch_add((u64 *)(r9 + 64), r4)", "db494000 01000000"),
        ("r0 = atomic64_cmpxchg((u64 *)(r9 + 80), r0, r1)", "db195000 f1000000"),
        ("r0 = *(u8 *)skb[15]", "30000000 0f000000"),
        ("r5 = -r5", "87050000 00000000"),
        ("r2 >>= 16", "77020000 10000000"),
        ("call 5", "85000000 05000000"),
        ("exit", "95000000 00000000"),
    ],
)
def test_a_line_is_its_instruction(line: str, code: str) -> None:
    assert BpfProgram(line, {"KEY": 12, "ports": 7}).code == bytes.fromhex(code)


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_jump_counts_from_behind_itself(before: int, between: int) -> None:
    source = "\n".join(
        ["r1 = 0"] * before + ["if r1 > r2 goto out"] + ["r1 = 0"] * between + ["out:", "exit"]
    )
    code, register, offset, _ = struct.unpack_from("=BBhi", BpfProgram(source, {}).code, 8 * before)
    assert (code, register, offset) == (0x2D, 0x21, between)


@pytest.mark.parametrize("line", ["r1 == 2", "goto", "r1 = *(u24 *)(r2 + 0)", "jump out"])
def test_what_is_no_instruction_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: not an instruction"):
        BpfProgram(f"exit\n{line}", {})


def test_the_ends_of_a_link_have_numbers_that_differ_in_the_last_bit() -> None:
    fabric = _flat({"kind": "lossless"}, hosts=5)
    numbers = [port_number(link, port) for link in fabric.links for port in (link.a, link.b)]
    assert sorted(numbers) == list(range(2, 2 + len(numbers)))
    for link in fabric.links:
        assert port_number(link, link.a) ^ 1 == port_number(link, link.b)


def test_the_default_headroom_allows_what_a_pause_frame_takes() -> None:
    link = _flat({"kind": "lossless"}).links[0]
    assert travel_ns(link) == 500_000 + 84 * 8 * 10
    assert allowed_reaction_ns(link, headroom_bytes(link)) == pytest.approx(travel_ns(link), abs=80)
    # 12,500 bytes more are a millisecond more.
    more = allowed_reaction_ns(link, headroom_bytes(link) + 12_500)
    assert more == pytest.approx(travel_ns(link) + 1_000_000, abs=80)
    # With less, losses are the spec's: nobody is asked to be faster than a pause frame.
    assert allowed_reaction_ns(link, 0) == travel_ns(link)


def test_what_a_fabric_is_made_of() -> None:
    assert needed_qdiscs(_flat({"kind": "lossless"})) == {"tbf", "netem", "clsact", "plug", "bfifo"}
    assert needed_qdiscs(_flat({"kind": "shared"})) == {"tbf", "netem", "clsact", "bfifo"}
    assert "drr" in needed_qdiscs(_flat({"kind": "voq"}))
    assert "red" in needed_qdiscs(_flat({"kind": "voq", "k": "20KB"}))
    assert not needs_switch_memory(_flat({"kind": "dctcp"}))


def test_headroom_is_what_the_link_needs_unless_given() -> None:
    fabric = _flat({"kind": "lossless", "xoff": 50_000, "xon": 40_000})
    link = fabric.links[0]
    port = link.port("s0")
    assert port_rules(port, link).limit_bytes == 50_000 + headroom_bytes(link)
    given_one = _flat({"kind": "lossless", "xoff": 50_000, "xon": 40_000, "headroom": "7B"})
    link = given_one.links[0]
    assert port_rules(link.port("s0"), link).limit_bytes == 50_007


def test_lossy_classes_are_not_paused_and_keep_out_of_the_headroom() -> None:
    queue = {"kind": "lossless", "buffer": "1MB", "lossy_priorities": [0, 2], "k": "50KB"}
    fabric = _flat(queue)
    assert {"prio", "plug", "bfifo"} <= needed_qdiscs(fabric)
    link = fabric.links[0]
    port = link.port("s0")
    lossy, lossless = (port_rules(port, link, priority, 60_000) for priority in (2, 3))
    assert (lossy.buffer_bytes, lossless.buffer_bytes) == (940_000, 1_000_000)
    assert lossy.xoff_bytes > 2**60 > lossless.xoff_bytes
    assert lossy.k_bytes == lossless.k_bytes == 50_000


def test_only_a_lossless_fabric_needs_a_controller() -> None:
    for kind, plugs in (("shared", 0), ("voq", 0), ("lossless", 3)):
        fabric = _flat({"kind": kind}, hosts=3)
        arrangement = SwitchArrangement(fabric)
        contexts = Blueprint(fabric, arrangement, TcpSettings()).contexts
        assert len(arrangement.plugs(contexts, Path)) == plugs
