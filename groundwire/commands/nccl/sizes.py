"""Sizes as nccl-tests takes them: a number with K, M or G, which are powers of 1024."""

from __future__ import annotations

import re

import typer

from collectives.kinds import Kind, rounded_elements

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST_SIZES = 64


def parse_size(text: str) -> int:
    """Bytes (parsesize of nccl-tests' src/common.cu). Raises typer.BadParameter."""
    found = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip().upper())
    if found is None or int(found[1]) < 1:
        raise typer.BadParameter(f"found {text!r}, allowed: a size such as 8, 64K, 128M or 1G")
    return int(found[1]) * _UNITS[found[2]]


def sizes_of(
    kind: Kind, least: str, most: str, factor: int, step: str | None, ranks: int, item_bytes: int
) -> tuple[int, ...]:
    """The sizes from least to most, rounded to what divides evenly; each once. Raises
    typer.BadParameter."""
    first, last = parse_size(least), parse_size(most)
    by = None if step is None else parse_size(step)
    if last < first:
        raise typer.BadParameter(f"found -e {most} below -b {least}, allowed: {least} and more")
    if by is None and factor < 2:
        raise typer.BadParameter(f"found -f {factor}, allowed: 2 and more, or -i with a step")
    found: dict[int, None] = {}
    size = first
    while size <= last:
        found[rounded_elements(kind, size, ranks, item_bytes) * item_bytes] = None
        if len(found) > _MOST_SIZES:
            allowed = f"at most {_MOST_SIZES}: a larger -f or -i"
            raise typer.BadParameter(f"found more sizes than {_MOST_SIZES}, allowed: {allowed}")
        size = size * factor if by is None else size + by
    return tuple(found)
