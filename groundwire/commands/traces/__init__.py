"""`groundwire trace`: Chakra execution traces, read, made and replayed."""
