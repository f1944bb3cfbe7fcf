"""Chakra execution traces: schema, checked reader, writer, and sources that become traces.

It replays nothing: `workloads` runs what `replay` makes of a trace. Three names to know: `Graph` (a
rank's nodes), `ChakraError` (file, node, field) and `expand` (collectives as the messages that they
send).
"""
