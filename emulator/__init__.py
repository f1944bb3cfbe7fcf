"""Fabrics made real: kernels, links, queues, ranks, captures, and the command line."""
