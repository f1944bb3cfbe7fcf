"""MRC as predictors know it: RoCE's queue pairs with other settings."""

from __future__ import annotations

from analysis.predict.transports.roce import PART

__all__ = ["PART"]
