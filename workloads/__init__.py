"""What ranks do: `models` says it as pure data, `execution` does it with torch."""
