"""MSCCL's algorithm files: read as programs, and written from them."""
