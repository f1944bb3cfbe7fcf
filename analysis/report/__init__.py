"""Reports of runs: one self-contained HTML page, markdown, comma-separated tables.

It draws figures that `analysis/metrics` computes, and judges nothing. Three names to know:
`finish_run` (a run's page and trace), `RunFigures` (all figures of a run) and `Table`.
"""

from analysis.report.csv import write_csv
from analysis.report.html import render_html
from analysis.report.markdown import render_markdown

__all__ = ["render_html", "render_markdown", "write_csv"]
