"""The native kernel: this machine's own, in real time."""
