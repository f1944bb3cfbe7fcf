"""The failure that a host's event names."""

from __future__ import annotations

from groundwire.remote.playbook import HostEvent

LOOP = {"msg": "All items completed", "results": [
    {"item": "linux", "changed": True},
    {"item": "System.map", "failed": True, "msg": "No space left on device"},
]}  # fmt: skip


def test_a_loop_says_what_its_item_said() -> None:
    event = HostEvent("vm", "failed", "Copy the kernel", LOOP)
    assert event.in_words() == "'Copy the kernel' failed: No space left on device"


def test_without_items_the_module_speaks() -> None:
    result = {"msg": "non-zero return code", "stderr": "E: no such package"}
    event = HostEvent("vm", "failed", "Install", result)
    assert event.in_words() == "'Install' failed: non-zero return code\nE: no such package"
    lost = HostEvent("vm", "unreachable", "Install", {"msg": "timed out"})
    assert lost.in_words() == "cannot be reached: timed out"
    assert HostEvent("vm", "failed", "Install", {}).in_words().endswith("it did not say why")
