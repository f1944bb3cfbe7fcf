"""Virtual GPUs in the terminal: the operators that took most time, memory, and utilization."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from groundwire.commands.console.figures import OutputConsole
from topologies.units import format_size

_SHOWN = 8


def print_gpus(section: dict[str, Any], console: OutputConsole, network: str) -> None:
    """Print `gpus` of a result; `network` is said in the title."""
    kernels = section["kernels"]
    whole_ns = sum(each["ns"] for each in kernels)
    title = f"Kernels of all GPUs{network}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("operator")
    for name in ("kernels", "ms", "share"):
        table.add_column(name, justify="right")
    for each in kernels[:_SHOWN]:
        share = each["ns"] / whole_ns if whole_ns else 0
        cells = f"{each['kernels']:,}", f"{each['ns'] / 1e6:,.3f}", f"{share:.1%}"
        table.add_row(each["operator"].removeprefix("aten::"), *cells)
    console.print(table)
    if len(kernels) > _SHOWN:
        console.print(f"and {len(kernels) - _SHOWN} more operators", highlight=False)
    if whole_ns:
        classes = (
            f"{each['kernel_class']} {each['ns'] / whole_ns:.1%}" for each in section["classes"]
        )
        console.print(f"By class: {', '.join(classes)}", highlight=False)
    if section["exposed"]:
        for each in section["exposed"]:
            kinds = ", ".join(f"{kind} {ns / 1e3:,.2f} us" for kind, ns in each["kinds"].items())
            console.print(
                f"Exposed communication of an iteration, {each['dimension']}: "
                f"{each['exposed_ns'] / 1e3:,.2f} us ({each['share']:.1%}): {kinds}",
                highlight=False,
            )
    if section["bubbles"]:
        bubbles = section["bubbles"]
        console.print(
            f"Pipeline bubbles, of what is exposed: {bubbles['bubble_ns'] / 1e3:,.2f} us "
            f"({bubbles['share']:.1%} of an iteration)",
            highlight=False,
        )
    most = max(section["ranks"], key=lambda each: each["peak_reserved_bytes"])
    said = (
        f"GPU memory: at most {_size(most, 'peak_reserved_bytes')} reserved, "
        f"{_size(most, 'peak_allocated_bytes')} allocated, of {_size(most, 'memory_bytes')} "
        f"(rank {most['rank']})"
    )
    reached = [each["mfu"] for each in section["ranks"] if each["mfu"] is not None]
    if reached:
        said += f"; MFU {sum(reached) / len(reached):.1%}"
    if section["throughput"]:
        rate = section["throughput"]
        said += f"; {rate['tokens_per_gpu_per_s']:,.0f} tokens/s per GPU ({rate['tokens']:,} tokens"
        said += " by embeddings)" if rate["source"] == "embeddings" else ")"
    console.print(said, highlight=False)


def _size(gpu: dict[str, Any], key: str) -> str:
    return format_size(round(gpu[key] / 1e6) * 10**6)
