"""The work of ranks: `models` has it as pure data, `execution` does it with torch."""
