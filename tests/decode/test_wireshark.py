"""The Lua dissector in tshark against the conversation that it is shown."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from analysis.decode.gloo.scapy_layer import gloo_messages
from analysis.decode.gloo.wire_format import Prefix, Slot
from tests.decode.synthetic_gloo import Transfer, Wire, converse

SCRIPT = Path(__file__).resolve().parents[2] / "analysis" / "wireshark" / "gloo.lua"
FIELDS = ("prefix", "tag", "opcode", "length", "nbytes", "delta")


def _missing() -> str | None:
    tshark = shutil.which("tshark")
    if tshark is None:
        return "tshark is not installed"
    about = subprocess.run([tshark, "--version"], capture_output=True, text=True).stdout
    return None if "with Lua" in about.replace("\n", " ") else "tshark was built without Lua"


pytestmark = pytest.mark.skipif(_missing() is not None, reason=str(_missing()))


def dissect(capture: Path) -> Counter[tuple[int, ...]]:
    """Every preamble that the dissector shows, as numbers."""
    words = [word for name in FIELDS for word in ("-e", f"gloo.{name}")]
    done = subprocess.run(
        ["tshark", "-X", f"lua_script:{SCRIPT}", "-r", str(capture), "-Y", "gloo.nbytes",
         "-T", "fields", "-E", "separator=|", *words],
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    assert "Lua" not in done.stderr, done.stderr
    found: Counter[tuple[int, ...]] = Counter()
    for line in done.stdout.splitlines():
        columns = [[int(value) for value in cell.split(",")] for cell in line.split("|")]
        found.update(zip(*columns, strict=True))
    return found


def test_every_message_of_a_whole_capture_is_shown(tmp_path: Path) -> None:
    transfers = [
        Transfer(side, Slot(prefix, tag, 0), size)
        for tag, (prefix, size) in enumerate(
            [(Prefix.ALLREDUCE, 5_000), (Prefix.BARRIER, 0), (Prefix.ALLTOALL, 70_000)]
        )
        for side in (0, 1, 0)
    ]
    wire = Wire()
    sides = converse(transfers, seed=4)
    wire.carry(sides, mss=1448, seed=4, losses=False)
    written: Counter[tuple[int, ...]] = Counter(
        (p.slot.prefix, p.slot.tag, p.opcode, p.length, p.nbytes, p.slot.delta)
        for side in sides
        for _, p in side.messages
    )
    assert dissect(wire.write_pcap(tmp_path / "a.pcap", 65_535)) == written


def test_a_real_capture_shows_what_we_decode(three_ranks: Path) -> None:
    path = three_ranks / "h0-eth0.pcap"
    ours = Counter(
        (m.packet.prefix, m.packet.tag, m.packet.opcode, m.packet.length, m.packet.nbytes,
         m.packet.delta)
        for m in gloo_messages(path)
        if not m.inferred
    )  # fmt: skip
    assert dissect(path) == ours
