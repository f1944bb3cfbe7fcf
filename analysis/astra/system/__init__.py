"""ASTRA-sim's system layer: from collectives to chunks, phases and messages."""
