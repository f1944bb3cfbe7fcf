"""MSCCL's algorithm files: read as programs, and written from them.

It runs no file: what is read is a program like any other. Three names to know: `read_file`, `write`
and `MscclError`.
"""
