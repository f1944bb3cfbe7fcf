"""Traces that keep secrets: obfuscated, or made after a corpus; and what they still tell.

It reads no files. Three names to know: `obfuscated` (communication and timing, and nothing else),
`Model` (what is learned of a corpus, and drawn from) and `inferred` (what a reader can tell).
"""
