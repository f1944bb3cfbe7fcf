"""Messages of programs over UDP, in a spec."""
