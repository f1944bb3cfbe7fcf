"""The section of result.json on copies of memory."""

from __future__ import annotations

from typing import Any

from analysis.runs.copies import copies_of
from analysis.runs.run import Run


def copies_section(run: Run) -> dict[str, Any] | None:
    """The links that copies took, and how many there were, of how many bytes; `busiest` is the port
    that was busy longest with them. None for a run without. Raises RunError."""
    copies = copies_of(run)
    carried = [link for link in run.port_counters if link.copies]
    if not copies or not carried:
        return None
    busiest = max(carried, key=lambda link: link.copying_ns)
    return {
        "link_class": run.fabric.copied_class,
        "copies": len(copies),
        "bytes": sum(copy.bytes for copy in copies),
        "bytes_on_links": sum(copy.bytes * len(copy.links) for copy in copies),
        "busiest": {
            "port": busiest.port,
            "copies": busiest.copies,
            "bytes": busiest.copied_bytes,
            "busy_ns": busiest.copying_ns,
        },
    }
