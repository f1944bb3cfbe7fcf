"""A command and a guest import only what they need before anything can happen."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("imported", "unwanted"),
    [
        ("groundwire.commands.run", {"numpy", "networkx", "scipy", "torch", "pandas", "jinja2"}),
        (
            "emulator.guest_experiment",
            {"networkx", "scipy", "torch", "pandas", "pyroute2", "mininet", "rich"},
        ),
        ("emulator.capture.recorder", {"scapy", "scipy", "torch", "pandas", "pyroute2"}),
        (
            "workloads.execution.rank",
            {"networkx", "scipy", "pandas", "pyroute2", "mininet", "rich"},
        ),
    ],
)
def test_what_takes_long_to_import_is_not_imported_at_the_start(
    imported: str, unwanted: set[str]
) -> None:
    script = f"import sys, {imported}; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert imported.split(".")[0] in done.stdout.split(), done.stderr
    assert not unwanted & set(done.stdout.split())


def test_ranks_have_torch_without_what_they_never_use() -> None:
    """Modules that are left out are empty; the collector is on, and looks at nothing of torch."""
    script = (
        "from emulator.ranks.torch_import import prepare_torch; prepare_torch()\n"
        "import gc, torch, torch._meta_registrations as left_out\n"
        "assert not hasattr(left_out, 'register_meta')\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 100_000\n"
        "print(int((torch.ones(3) * 2).sum()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "6\n", done.stderr
