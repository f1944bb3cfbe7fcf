"""The capabilities of this machine, and those that it lacks."""
