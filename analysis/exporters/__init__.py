"""Runs in the formats of other tools: Perfetto, OpenMetrics, nccl-tests.

It computes no figure that the report lacks. Three names to know: `write_trace` (Perfetto),
`render_openmetrics` and `write_trace_as` (execution traces).
"""

from analysis.exporters.nccl_style import render_nccl_style
from analysis.exporters.openmetrics import render_openmetrics
from analysis.exporters.perfetto import write_trace

__all__ = ["render_nccl_style", "render_openmetrics", "write_trace"]
