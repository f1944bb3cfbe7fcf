"""What ranks send: numbers that are checked, or memory that all share."""
