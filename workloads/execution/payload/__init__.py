"""The payload of ranks: numbers that are checked, or memory that all share."""
