"""What the compiled packet engine is told of a setting and of collectives, and what it answers."""
