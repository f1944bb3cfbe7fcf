"""TCP connections put together from the packets of captures."""
