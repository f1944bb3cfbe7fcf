"""Chakra execution traces: schema, checked reader, writer, and sources that become traces."""
