"""MRC: queue pairs, as of RoCE, whose devices have other settings."""

from __future__ import annotations

from workloads.execution.transports.roce import PART

__all__ = ["PART"]
