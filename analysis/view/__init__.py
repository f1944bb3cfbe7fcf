"""The page of `groundwire view`: a fabric over time, its ranks, and two runs beside each other.

The room makes a document of a run (`ViewDocument`), which a page shows in a browser
(`render_page`). It measures nothing itself: `metrics` and `runs` have the figures. Reports, which
are read and not moved about in, are in `report`.

Three names to know: `view_document` reads a run, `render_page` puts documents into one file,
`ViewServer` serves them to this machine's browsers.
"""

from analysis.view.document import ViewDocument, view_document
from analysis.view.page import render_page
from analysis.view.server import ViewServer

__all__ = ["ViewDocument", "ViewServer", "render_page", "view_document"]
