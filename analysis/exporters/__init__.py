"""Runs in the formats of other tools: Perfetto, OpenMetrics, nccl-tests."""

from analysis.exporters.nccl_style import render_nccl_style
from analysis.exporters.openmetrics import render_openmetrics
from analysis.exporters.perfetto import write_trace

__all__ = ["render_nccl_style", "render_openmetrics", "write_trace"]
