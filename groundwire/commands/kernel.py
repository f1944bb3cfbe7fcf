"""`groundwire kernel`: the virtual kernel's build and state."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from emulator.virtual.building.build import ensure_kernel, find_kernel
from groundwire.commands.console.outcome import outcome

kernel_app = typer.Typer(
    help="The virtual kernel: a Linux built as a program, once, into the cache folder.",
    no_args_is_help=True,
)


@kernel_app.command()
@outcome
def build() -> int:
    """Build the virtual kernel unless this version of it is in the cache already."""
    console = Console(stderr=True)
    image = ensure_kernel(lambda text: console.print(text, highlight=False))
    console.print(f"virtual kernel: {image.path}", highlight=False, soft_wrap=True)
    return 0


@kernel_app.command()
@outcome
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say whether the virtual kernel is built, and where it is. Exit code 1 when it is not."""
    image = find_kernel()
    if as_json:
        print(json.dumps({"built": image is not None, "path": str(image.path) if image else None}))
    elif image is None:
        print("not built; `groundwire kernel build` builds it in about four minutes")
    else:
        print(f"built: {image.path}")
    return 0 if image is not None else 1
