"""The spec language: sections, files with line numbers, overrides, and mistakes told in words."""
