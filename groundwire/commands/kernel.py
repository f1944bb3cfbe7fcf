"""`groundwire kernel`: the virtual kernel's build and state."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from emulator.virtual.building.build import ensure_kernel, find_kernel
from emulator.virtual.building.variant import KernelVariant
from groundwire.commands.console.outcome import outcome

kernel_app = typer.Typer(
    help="The virtual kernel: a Linux built as a program, once, into the cache folder.",
    no_args_is_help=True,
)


_Ipv6 = Annotated[
    bool,
    typer.Option("--ipv6", help="The kernel with IPv6, which fabric.routing.kind: srv6 needs."),
]


def _variant(ipv6: bool) -> KernelVariant:
    return KernelVariant.IPV6 if ipv6 else KernelVariant.USUAL


@kernel_app.command()
@outcome
def build(ipv6: _Ipv6 = False) -> int:
    """Build the virtual kernel unless this version of it is in the cache already."""
    console = Console(stderr=True)
    image = ensure_kernel(lambda text: console.print(text, highlight=False), _variant(ipv6))
    console.print(f"virtual kernel: {image.path}", highlight=False, soft_wrap=True)
    return 0


@kernel_app.command()
@outcome
def status(
    ipv6: _Ipv6 = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say whether the virtual kernel is built, and where it is. Exit code 1 when it is not."""
    image = find_kernel(_variant(ipv6))
    if as_json:
        print(json.dumps({"built": image is not None, "path": str(image.path) if image else None}))
    elif image is None:
        option = " --ipv6" if ipv6 else ""
        print(f"not built; `groundwire kernel build{option}` builds it in about four minutes")
    else:
        print(f"built: {image.path}")
    return 0 if image is not None else 1
