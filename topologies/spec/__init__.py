"""The spec language: sections, files with line numbers, overrides, and mistakes told in words.

A section is a pydantic model in a file of its own. Checks across sections are in `checks.py`; rooms
above add theirs by name. It builds nothing: `topologies/fabrics` does. Three names to know: `Spec`,
`Sections` and `Problem` (a mistake, with its key and what is allowed).
"""
