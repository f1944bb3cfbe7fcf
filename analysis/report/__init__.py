"""Reports of runs: one self-contained HTML page, markdown, comma-separated tables."""

from analysis.report.csv import write_csv
from analysis.report.html import render_html
from analysis.report.markdown import render_markdown

__all__ = ["render_html", "render_markdown", "write_csv"]
